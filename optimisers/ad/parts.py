"""A model taken apart for a library that differentiates: arrays that are trained, and the rest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import optree

from ..api.found import parameters
from ..api.partition import moving
from ..arrays import is_array_type
from ..arrays.containers import container_of
from ..errors import ArgumentError
from ..state import State
from ..tree import Outline, Program, flatten, outline, program, rebuild
from ..tree.nodes import NAMESPACE

MOST = 64
NOTHING = (
    "nothing in the model is trainable: it holds no floating array that is reached; make numbers "
    "arrays with np.asarray(x, float), and register classes with optimisers.register(cls)"
)


class Shape(NamedTuple):
    """What is static about a model: its outline, and how all of its leaves are replaced."""

    outline: Outline
    whole: Program


_shapes: OrderedDict[Any, Shape] = OrderedDict()
_lock = threading.Lock()


def objects_in(tree: Any) -> list[Any]:
    """Return the containers and leaves of a tree, from the top."""
    flatten(tree)  # which introduces classes that are new to us
    seen: list[Any] = []

    def see(x: Any) -> bool:
        seen.append(x)
        return False

    optree.tree_flatten(tree, see, none_is_leaf=True, namespace=NAMESPACE)
    return seen


def _shape_of(model: Any, structure: Any) -> Shape:
    """Walk a model by name, unless one of the same structure was walked lately."""
    with _lock:
        shape = _shapes.get(structure)
    if shape is None:
        places = outline(model)
        shape = Shape(places, program(places.nodes, range(len(places.paths))))
        with _lock:
            _shapes[structure] = shape
            while len(_shapes) > MOST:
                _shapes.popitem(last=False)
    return shape


class Parts:
    """The arrays of a model that are to be differentiated, and how to put others in their place.

    arrays: one for each place, so that a tied array comes as often as it stands in the model.
    """

    def __init__(self, model: Any, state: State | None = None) -> None:
        self.leaves, self.structure = flatten(model)
        self._model, self._shape = model, _shape_of(model, self.structure)
        self.at = tuple(self._trained() if state is None else moving(state, model)[1])
        self.arrays = [self.leaves[i] for i in self.at]

    def _trained(self) -> list[int]:
        """Return which leaves `setup` would train."""
        places = self._shape.outline
        found, _ = parameters(places, self.leaves, ties=(), warn=False)
        if not found:
            raise ArgumentError(NOTHING)
        index = {path: i for i, path in enumerate(places.paths)}
        return sorted(index[path] for f in found for path in f.param.paths)

    def model_with(self, arrays: Sequence[Any], others: Sequence[Any] | None = None) -> Any:
        """Return the model with other arrays; itself, if they are the ones that it has.

        `others`: all of the leaves, of which those that are not differentiated count.
        """
        if others is None and all(a is b for a, b in zip(arrays, self.arrays, strict=True)):
            return self._model
        leaves = list(self.leaves if others is None else others)
        for i, x in zip(self.at, arrays, strict=True):
            leaves[i] = x
        return rebuild(self._model, self._shape.whole, leaves, False)

    def nested(self, grads: Sequence[Any]) -> Any:
        """Return gradients nested like the model, with None where nothing was differentiated."""
        leaves: list[Any] = [None] * len(self.leaves)
        for i, g in zip(self.at, grads, strict=True):
            leaves[i] = g
        return _gradients(self._model, self._shape.whole, leaves)

    def others(self, model: Any) -> list[Any]:
        """Return what a model, made by `model_with`, has by now where it is not differentiated.

        Places that it no longer has keep what they had; new ones are not looked at.
        """
        leaves, structure = flatten(model)
        if structure == self.structure:
            now = leaves
        else:
            found = dict(zip(outline(model).paths, leaves, strict=True))
            pairs = zip(self._shape.outline.paths, self.leaves, strict=True)
            now = [found.get(path, x) for path, x in pairs]
        mine = set(self.at)
        return [x if i not in mine and is_array_type(type(x)) else None for i, x in enumerate(now)]

    def write_others(self, now: Sequence[Any]) -> None:
        """Write into the model what `others` found, where it has changed."""
        pairs = list(zip(self.leaves, now, strict=True))
        changed = {i for i, (old, x) in enumerate(pairs) if x is not None and x is not old}
        if changed:
            steps = program(self._shape.outline.nodes, changed)
            rebuild(self._model, steps, [old if x is None else x for old, x in pairs], True)


def _gradients(model: Any, steps: Program, leaves: Sequence[Any]) -> Any:
    """Return a tree nested like the model.

    Unlike in `rebuild`, a container at two places comes back as two, as their gradients differ. A
    library's module comes back as a dict of its names: gradients are none of its parameters.
    """
    if not steps.size:
        return leaves[0]
    objects: list[Any] = [None] * steps.size
    objects[0] = model
    for i, kind, names, inner in steps.fetch:
        children = kind.get(objects[i], names)
        for place, child in inner:
            objects[child] = children[place]
    for i, kind, names, _, slots in steps.refits:
        parts = [leaves[s] if s >= 0 else objects[~s] for s in slots]
        own = container_of(type(objects[i])) is None
        objects[i] = (
            kind.build(objects[i], names, parts) if own else dict(zip(names, parts, strict=True))
        )
    return objects[0]
