"""adjust, freeze and thaw: steering a run between steps, without compiling anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.numbers import precision
from ..errors import ArgumentError, RuleError
from ..rules.checks import names_of, unknown_field
from ..rules.fields import numbers_of, rebuild, template_of
from ..rules.rule import Rule
from ..state import State, Unit
from ..state.build import stored
from ..state.state import checked, copied
from ..tree.select import Where, chosen


def adjust(state: Any, eta: Any = None, where: Where = None, **fields: Any) -> Any:
    """Return a state (or a rule) with other hyper-parameters; moments and counts are kept.

    The given state is left as it was; both can be used afterwards. Nothing is compiled again.

    Args:
        state: the whole, a part (`state["enc"]`), or a bare rule.
        eta: the learning rate, for every rule that has one.
        where: which parameters; all if None.
        **fields: other fields by name, for every rule that has them.

    Returns:
        A new state; for a rule, a new rule.

    Raises:
        RuleError: a field that no selected rule has (the nearest is suggested), or a value out of
            its range.

    Examples:
        >>> state = setup(OptimiserChain(ClipGrad(2.0), Adam()), {"w": np.ones(3)})
        >>> adjust(state, 0.01, delta=2.5)["w"].rule.rules[0]
        ClipGrad(delta=2.5)
    """
    if isinstance(state, Rule):
        return state.adjust(**_fields(eta, fields))
    return _adjust(copied(checked(state)), eta, where, fields)


def adjust_(state: State, eta: Any = None, where: Where = None, **fields: Any) -> State:
    """Set other hyper-parameters in a state, or through a part in the whole; returns it.

    Args:
        state: as in `adjust`.
        eta: as in `adjust`.
        where: as in `adjust`.
        **fields: as in `adjust`.

    Returns:
        The given state.

    Raises:
        RuleError: as in `adjust`; nothing is changed then.
    """
    return _adjust(checked(state), eta, where, fields)


def _fields(eta: Any, fields: dict[str, Any]) -> dict[str, Any]:
    given = {**fields} if eta is None else {"eta": eta, **fields}
    if not given:
        raise ArgumentError("adjust needs a learning rate, or fields by name")
    return given


def selected(state: State, where: Where) -> list[int]:
    """Return the parameters of a state, or of the part that it is, that a pattern selects."""
    layout, at = state._box.layout, state._at
    places = [
        (i, paths, jax.ShapeDtypeStruct(p.shape, jnp.dtype(p.dtype)))
        for i, p in enumerate(layout.params)
        if (paths := [path[len(at) :] for path in p.paths if path[: len(at)] == at])
    ]
    return chosen(where, places)


def _adjust(state: State, eta: Any, where: Where, fields: dict[str, Any]) -> State:
    given, box = _fields(eta, fields), state._box
    indices = set(selected(state, where))
    touched = {
        u: [i in indices for i in unit.params]
        for u, unit in enumerate(box.layout.units)
        if indices.intersection(unit.params)
    }
    _check_names(given, [box.layout.units[u] for u in touched])
    new = {
        u: _adjusted(box.layout.units[u], box.arrays[u], mask, given)
        for u, mask in touched.items()
    }
    for u, arrays in new.items():
        box.arrays[u][:] = arrays
    return state


def _check_names(given: dict[str, Any], units: Sequence[Unit]) -> None:
    rules = [rebuild(u.spec.template, [0.0] * u.spec.template.width) for u in units]
    known = set().union(*(names_of(rule) for rule in rules))
    if unknown := set(given) - known:
        raise unknown_field(unknown, " and ".join(sorted({type(r).__name__ for r in rules})), known)


def _adjusted(
    unit: Unit, arrays: list[Any], mask: list[bool], given: dict[str, Any]
) -> list[Any]:
    """Return the arrays of a unit with other hyper-parameters where `mask`."""
    template, n = unit.spec.template, unit.hypers
    tables = arrays[:n]
    traced = any(isinstance(v, jax.core.Tracer) for v in (*tables, *given.values()))
    lib: Any = jnp if traced else np
    with precision(unit.spec.wide):
        table = lib.asarray(tables[0]) if unit.spec.packed else lib.stack(tables)
        columns = [table[:, i] for i in range(template.width)]
        old = rebuild(template, columns)
        own = {name: value for name, value in given.items() if name in names_of(old)}
        if not own:
            return arrays
        rule = old.adjust(**own)
        if template_of(rule) != template:
            raise RuleError(f"cannot adjust {sorted(own)} of {template.cls.__name__} in a state")
        chosen_rows = lib.asarray(mask)
        new = [
            lib.where(chosen_rows, lib.asarray(v, dtype=table.dtype), column)
            for v, column in zip(numbers_of(rule), columns, strict=True)
        ]
        whole = lib.stack(new, axis=1)
    hypers = [whole] if unit.spec.packed else [whole[i] for i in range(n)]
    return stored(unit, [*hypers, *arrays[n:]], traced)


def freeze(state: State, where: Where = None) -> State:
    """Return a state in which parameters are held still: no step, no decay, their state kept.

    Args:
        state: the whole, or a part.
        where: which parameters; all if None.

    Returns:
        A new state, sharing arrays with the given one, which is left as it was.

    Raises:
        StructureError: the pattern selects nothing.

    Examples:
        >>> state = setup(Descent(0.1), {"enc": np.ones(3), "dec": np.ones(3)})
        >>> freeze(state, "enc")["enc"].frozen
        True
    """
    return _set_frozen(copied(checked(state)), where, True)


def freeze_(state: State, where: Where = None) -> State:
    """Hold parameters of the given state still, and return it.

    Args:
        state: as in `freeze`.
        where: as in `freeze`.

    Returns:
        The given state.

    Raises:
        StructureError: the pattern selects nothing.
    """
    return _set_frozen(checked(state), where, True)


def thaw(state: State, where: Where = None) -> State:
    """Return a state in which parameters are trained again, from the state that they had.

    Args:
        state: as in `freeze`.
        where: as in `freeze`.

    Returns:
        A new state; the given one is left as it was.

    Raises:
        StructureError: the pattern selects nothing.
    """
    return _set_frozen(copied(checked(state)), where, False)


def thaw_(state: State, where: Where = None) -> State:
    """Train parameters of the given state again, and return it.

    Args:
        state: as in `freeze`.
        where: as in `freeze`.

    Returns:
        The given state.

    Raises:
        StructureError: the pattern selects nothing.
    """
    return _set_frozen(checked(state), where, False)


def _set_frozen(state: State, where: Where, frozen: bool) -> State:
    box = state._box
    box.layout = box.layout.with_frozen(dict.fromkeys(selected(state, where), frozen))
    return state
