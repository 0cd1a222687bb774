"""get_path, set_path and has_path: one place of a model, of gradients, or of a state."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np

from ..arrays import describe
from ..arrays.containers import Kind
from ..errors import ArgumentError, StructureError
from ..state import State
from ..state.relayout import Kept, relaid
from ..state.spec import struct_of
from ..state.state import Box, copied
from ..tree import flatten
from ..tree.nodes import kind_of
from ..tree.outline import step
from ..tree.paths import Place, name_meant, names_in
from .adjust import adjust
from .freeze import freeze, thaw

ASPECTS = ("rule", "state", "frozen", "steps", "hyperparameters")


def get_path(tree: Any, path: Place) -> Any:
    """Return what stands at a path of a model, of gradients, or of a state.

    Args:
        tree: any of the three. In a state, the path of a parameter goes on with one of `state`
            (and on, into the moments), `rule`, `frozen`, `steps`, `hyperparameters`.
        path: a tuple of keys, `("enc", 0, "w")`, or the same as text, `"enc/0/w"`.

    Returns:
        The leaf or the branch; in a state, a part of it.

    Raises:
        StructureError: nothing stands there.
        ArgumentError: what was given is no path.

    Examples:
        >>> model = {"enc": [{"w": np.ones(2)}]}
        >>> get_path(model, "enc/0/w")
        array([1., 1.])
        >>> state = setup(Momentum(), model)
        >>> get_path(state, "enc/0/w/steps")
        0
    """
    parts, written = _parts(path)
    if isinstance(tree, State):
        place, rest = _in_state(tree, parts, written)
        return _down(_aspect(place, rest[0]), rest[1:], written)[-1][0] if rest else place
    return _down(tree, parts, written)[-1][0]


def has_path(tree: Any, path: Place) -> bool:
    """Tell whether anything stands at a path of a model, of gradients, or of a state.

    Args:
        tree: as in `get_path`.
        path: as in `get_path`.

    Returns:
        Whether `get_path` would return something.

    Raises:
        ArgumentError: what was given is no path.

    Examples:
        >>> has_path({"w": 1.0}, "w"), has_path({"w": 1.0}, "b")
        (True, False)
    """
    try:
        get_path(tree, path)
    except StructureError:
        return False
    return True


def set_path(tree: Any, path: Place, value: Any) -> Any:
    """Return a tree with something else at a path; the given tree is left as it was.

    Containers on the way are made anew, everything beside them is shared. In a state, moments, the
    count of steps, the frozen flag, the rule and its numbers can be set; a tied parameter has one
    state, so that setting it at one place sets it at all.

    Args:
        tree: as in `get_path`.
        path: as in `get_path`; it must be there already.
        value: a leaf or a branch; moments of the shape that they have.

    Returns:
        A new tree.

    Raises:
        StructureError: nothing stands there, or the value does not fit a state.
        ArgumentError: what was given is no path.

    Examples:
        >>> model = {"enc": [1.0, 2.0], "dec": 3.0}
        >>> set_path(model, "enc/1", 5.0)
        {'enc': [1.0, 5.0], 'dec': 3.0}
        >>> state = setup(Momentum(), {"w": np.zeros(2)})
        >>> set_path(state, "w/state", np.ones(2))["w"].state
        array([1., 1.])
    """
    parts, written = _parts(path)
    if not isinstance(tree, State):
        return _replaced(_down(tree, parts, written), value)
    place, rest = _in_state(tree, parts, written)
    if not rest:
        raise StructureError(
            f"cannot set {_code(place._at)} as a whole; say which of {', '.join(ASPECTS)} there"
        )
    whole = _set_aspect(place, rest[0], rest[1:], written, value)
    return State(whole._box, tree._at)


def _parts(path: Place) -> tuple[Sequence[Hashable], bool]:
    if isinstance(path, tuple):
        return path, False
    if isinstance(path, str):
        return names_in(path), True
    raise ArgumentError(f'a path is a tuple of keys or a string like "enc/0/w", got {path!r}')


Step = tuple[Any, Kind | None, tuple[Hashable, ...], int]


def _down(tree: Any, parts: Sequence[Hashable], written: bool) -> list[Step]:
    """Return the objects on the way down; with each container its kind, names, and where next."""
    flatten(tree)  # makes containers known that only JAX knows
    way: list[Step] = []
    code = "tree"
    for part in parts:
        kind = kind_of(tree)
        level = None if kind is None else kind.open(tree)
        name = None if level is None else name_meant(part, level.names, written)
        if level is None or name not in level.names:
            there = "nothing below it" if level is None else ", ".join(map(repr, level.names))
            raise StructureError(f"{code} has no {part!r}; it has {there or 'nothing'}")
        index = level.names.index(name)
        way.append((tree, kind, level.names, index))
        tree, code = level.children[index], code + step(name, level.dotted)
    return [*way, (tree, None, (), 0)]


def _replaced(way: list[Step], value: Any) -> Any:
    for x, kind, names, index in reversed(way[:-1]):
        assert kind is not None
        children = list(kind.open(x).children)
        children[index] = value
        value = kind.build(x, names, children)
    return value


def _in_state(
    state: State, parts: Sequence[Hashable], written: bool
) -> tuple[State, Sequence[Hashable]]:
    """Return the deepest part of a state on a path, and what remains of the path below it."""
    for i, part in enumerate(parts):
        if state._at in state._box.layout.places:
            if part not in ASPECTS:
                raise StructureError(f"{_code(state._at)} has {', '.join(ASPECTS)}, no {part!r}")
            return state, parts[i:]
        name = name_meant(part, state, written)
        if name is None:
            known = ", ".join(map(repr, state)) or "nothing"
            raise StructureError(f"{_code(state._at)} has no {part!r}; it has {known}")
        state = state[name]
    return state, ()


def _code(at: Sequence[Hashable]) -> str:
    return "state" + "".join(step(name, False) for name in at)


def _aspect(place: State, aspect: Hashable) -> Any:
    if aspect == "steps":
        return place._box.count(place._param())
    return getattr(place, str(aspect))


def _set_aspect(
    place: State, aspect: Hashable, rest: Sequence[Hashable], written: bool, value: Any
) -> State:
    if aspect == "hyperparameters" and len(rest) == 1:
        return adjust(place, **{str(rest[0]): value})  # type: ignore[no-any-return]
    if aspect in ("state", "steps") and (aspect == "state" or not rest):
        return _set_carried(place, aspect == "state", rest, written, value)
    if aspect == "rule" and not rest:
        return adjust(place, value)  # type: ignore[no-any-return]
    if aspect == "frozen" and not rest:
        return freeze(place) if value else thaw(place)
    raise StructureError(f"cannot set {aspect} of {_code(place._at)} at {'/'.join(map(str, rest))}")


def _set_carried(
    place: State, moments: bool, rest: Sequence[Hashable], written: bool, value: Any
) -> State:
    """Return a state with another count, or other moments, at a parameter."""
    new = copied(place)
    box, i = new._box, place._param()
    count, state = box.count(i), box.state(i)
    if moments:
        state = _replaced(_down(state, rest, written), value)
        _check_fits(box, i, state)
    else:
        if not (isinstance(value, int | np.integer) and value >= 0):
            raise StructureError(f"cannot set steps of {_code(place._at)} to {value!r}")
        count = int(value)
    box.become(*relaid(box.layout, box.arrays, {i: Kept(box.rule(i), count, state)}))
    return new


def _check_fits(box: Box, i: int, state: Any) -> None:
    param, (u, _) = box.layout.params[i], box.layout.where(i)
    wanted = struct_of(box.layout.units[u].spec.template, param.dtype, param.shape)[1]
    structure: Any = jax.tree.structure(wanted)
    shapes = [np.shape(a) for a in jax.tree.leaves(state)]
    if jax.tree.structure(state) != structure or shapes != [
        s.shape for s in jax.tree.leaves(wanted)
    ]:
        got, expected = jax.tree.map(describe, (state, wanted))
        raise StructureError(
            f"cannot set the state of {param.codes[0]} to {got}; its rule needs {expected}"
        )
