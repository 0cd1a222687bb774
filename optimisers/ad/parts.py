"""A model taken apart for a library that differentiates: arrays that are trained, and the rest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import optree

from ..api.found import parameters
from ..api.partition import moving
from ..arrays import is_array_type
from ..arrays.containers import Kind, NameTuple, container_of
from ..arrays.ops import is_traced_type
from ..errors import ArgumentError, StateError
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


def check_alive(x: Any, code: str) -> None:
    """Raise where an array of JAX was given away."""
    if isinstance(x, jax.Array) and not is_traced_type(type(x)) and x.is_deleted():
        raise StateError(
            f"{code} was deleted: its memory was given to an update; use the model that the last "
            "call returned"
        )


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
    """A model's arrays that are to be differentiated, the rest, and how to put others in place.

    arrays: one for each place, so that a tied array comes as often as it stands in the model.
    """

    def __init__(self, model: Any, state: State | None = None) -> None:
        self.leaves, self.structure = flatten(model)
        self._model, self._shape = model, _shape_of(model, self.structure)
        self.at = tuple(self._trained() if state is None else moving(state, model)[1])
        self.arrays = [self.leaves[i] for i in self.at]
        for i, x in zip(self.at, self.arrays, strict=True):
            if isinstance(x, jax.Array):
                check_alive(x, self._shape.outline.codes[i])
        mine = frozenset(self.at)
        self._elsewhere = [i for i in range(len(self.leaves)) if i not in mine]
        self.rest = [self.leaves[i] for i in self._elsewhere]

    def _trained(self) -> list[int]:
        """Return which leaves `setup` would train."""
        places = self._shape.outline
        found, _ = parameters(places, self.leaves, ties=(), warn=False)
        if not found:
            raise ArgumentError(NOTHING)
        index = {path: i for i, path in enumerate(places.paths)}
        return sorted(index[path] for f in found for path in f.param.paths)

    def model_with(self, arrays: Sequence[Any], rest: Sequence[Any] | None = None) -> Any:
        """Return the model with other arrays; itself, if they are the ones that it has."""
        if rest is None and all(a is b for a, b in zip(arrays, self.arrays, strict=True)):
            return self._model
        return rebuild(self._model, self._shape.whole, self._filled(arrays, rest), False)

    def nested(self, grads: Sequence[Any]) -> Any:
        """Return gradients nested like the model, with None where nothing was differentiated."""
        leaves = self._filled(grads, [None] * len(self.rest))
        return _gradients(self._model, self._shape.whole, leaves)

    def rest_of(self, model: Any) -> list[Any]:
        """Return the arrays that a model, made by `model_with`, has by now in the rest.

        Places that it no longer has keep what they had; new ones are not looked at.
        """
        leaves, structure = flatten(model)
        if structure != self.structure:
            found = dict(zip(outline(model).paths, leaves, strict=True))
            pairs = zip(self._shape.outline.paths, self.leaves, strict=True)
            leaves = [found.get(path, x) for path, x in pairs]
        now = [leaves[i] for i in self._elsewhere]
        return [x if is_array_type(type(x)) else None for x in now]

    def write_rest(self, now: Sequence[Any]) -> None:
        """Write into the model what `rest_of` found, where it has changed."""
        rest = zip(self._elsewhere, self.rest, now, strict=True)
        changed = {i: x for i, old, x in rest if x is not None and x is not old}
        if changed:
            leaves = [changed.get(i, x) for i, x in enumerate(self.leaves)]
            rebuild(self._model, program(self._shape.outline.nodes, changed), leaves, True)

    def _filled(self, arrays: Sequence[Any], rest: Sequence[Any] | None) -> list[Any]:
        leaves = list(self.leaves)
        for i, x in zip(self.at, arrays, strict=True):
            leaves[i] = x
        if rest is not None:
            for i, x in zip(self._elsewhere, rest, strict=True):
                leaves[i] = x
        return leaves


def _gradients(model: Any, steps: Program, leaves: Sequence[Any]) -> Any:
    """Return a tree nested like the model.

    Unlike in `rebuild`, a container at two places comes back as two, as their gradients differ. A
    library's module comes back as a dict of its names: gradients are none of its parameters. So
    does what checks its fields and refuses None.
    """
    if not steps.size:
        return leaves[0]
    objects: list[Any] = [None] * steps.size
    objects[0] = model
    for i, kind, names, inner in steps.fetch:
        children = kind.get(objects[i], names)
        for place, child in inner:
            objects[child] = children[place]
    is_module = [container_of(type(x)) is not None for x in objects]
    objects = [{} if module else x for x, module in zip(objects, is_module, strict=True)]
    for i, kind, names, _, slots in steps.refits:
        parts = [leaves[s] if s >= 0 else objects[~s] for s in slots]
        objects[i] = dict(zip(names, parts, strict=True)) if is_module[i] else _like(
            objects[i], kind, names, parts
        )  # fmt: skip
    return objects[0]


def _like(x: Any, kind: Kind, names: NameTuple, parts: list[Any]) -> Any:
    """Return a container like `x`; a dict, if its class does not take None."""
    try:
        return kind.build(x, names, parts)
    except Exception:  # whatever a constructor raises that finds None where an array should be
        if all(part is not None for part in parts):
            raise
        return dict(zip(names, parts, strict=True))
