"""A state taken apart into its parameters, and put together again, perhaps in other units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import describe
from ..arrays.numbers import compute_dtype, precision
from ..arrays.ops import is_traced_type
from ..arrays.sharding import beside, whole
from ..errors import RuleError
from ..rules.fields import rebuild, template_of
from ..rules.pick import with_whole_numbers
from ..rules.rule import Rule, start
from . import rows as host_rows
from .build import grouped, hyper_table, stored
from .carried import opened
from .kernel import pack
from .layout import Layout, Unit, interned
from .spec import Spec, struct_of


class Kept(NamedTuple):
    """What a state holds for one parameter: its rule, and count and state, outside any unit."""

    rule: Rule
    count: Any
    state: Any


def is_traced(arrays: Sequence[Any]) -> bool:
    """Tell whether any array is a tracer."""
    return any(map(is_traced_type, set(map(type, arrays))))


def rule_at(unit: Unit, arrays: Sequence[Any], k: int) -> Rule:
    """Return the rule of parameter `k` of a unit, with the numbers in force."""
    numbers = _host(arrays[0])[k]
    if is_traced_type(type(numbers)):
        return _rebuilt(unit, [numbers[i] for i in range(unit.spec.template.width)])
    return _rebuilt(unit, [short(v) for v in np.asarray(numbers)])


def _rebuilt(unit: Unit, numbers: Sequence[Any]) -> Rule:
    rule: Rule = with_whole_numbers(rebuild(unit.spec.template, numbers))
    return rule


def short(value: Any) -> float:
    """Return the shortest Python float that rounds to a stored number: 0.1, not 0.10000000149."""
    return float(str(value)) if value.dtype == np.float32 else float(value)


def carried_at(unit: Unit, arrays: list[Any], k: int) -> tuple[Any, Any]:
    """Return the count of parameter `k` of a unit, and the state as its rule's `init` made it.

    What comes out of a pack is NumPy's, unless it is traced or on another device than the CPU:
    each slice by JAX would be a program of its own.
    """
    spec, carried = unit.spec, opened(unit.spec, arrays[1:])
    moments = _cut(spec, carried.moments, k) if spec.packed else carried.moments[k]
    count, state = spec.form.join([_host(table)[k] for table in carried.scalars], moments)
    return count, state


def _cut(spec: Spec, moments: Sequence[Any], k: int) -> list[Any]:
    begin, rows, shape = int(spec.first[k]), spec.rows[k], spec.shapes[k]
    size = int(np.prod(shape, dtype=int))
    return [_host(m)[begin : begin + rows].reshape(-1)[:size].reshape(shape) for m in moments]


def _host(a: Any) -> Any:
    """Return an array as a view of NumPy's, where that costs nothing."""
    if isinstance(a, np.ndarray) or is_traced_type(type(a)) or not a.is_fully_addressable:
        return a
    return np.asarray(a) if all(d.platform == "cpu" for d in a.devices()) else a


def count_at(unit: Unit, arrays: list[Any], k: int) -> Any:
    """Return how many steps parameter `k` of a unit has taken: an int, unless it is traced."""
    carried, slot = opened(unit.spec, arrays[1:]), unit.spec.form.slots[0]
    assert slot.table is not None
    table = carried.scalars[slot.table]
    if is_traced_type(type(table)):
        return table[k, slot.column]
    return int(np.asarray(table)[k, slot.column])


def state_at(unit: Unit, arrays: list[Any], k: int) -> Any:
    """Return the state of parameter `k` of a unit, in arrays that are nobody else's memory."""
    # The last array is one of the moments, if there are any: they live where the parameters do.
    held = [a for a in arrays[1:] if isinstance(a, jax.Array)]

    def own(a: Any) -> Any:
        if not isinstance(a, np.ndarray | np.generic):
            return a
        return jax.device_put(np.array(a), whole(held[-1].sharding)) if held else np.array(a)

    with precision(unit.spec.wide):
        return jax.tree.map(own, carried_at(unit, arrays, k)[1])


def taken(unit: Unit, arrays: list[Any], k: int) -> Kept:
    """Return parameter `k` of a unit."""
    return Kept(rule_at(unit, arrays, k), *carried_at(unit, arrays, k))


def put(unit: Unit, codes: Sequence[str], kept: Sequence[Kept], homes: Sequence[Any]) -> list[Any]:
    """Return the arrays of a unit of these parameters.

    Args:
        unit: whose.
        codes: where the parameters are, for errors.
        kept: one for each parameter.
        homes: the sharding of each parameter, as far as it is known; None for JAX's default.

    Raises:
        RuleError: the state of a parameter is not one of its rule.
    """
    form, rules = unit.spec.form, dict(zip(unit.params, (k.rule for k in kept), strict=True))
    rows = [_leaves(unit, k, codes[k], (one.count, one.state)) for k, one in enumerate(kept)]
    hyper = hyper_table(unit, rules)
    traced = is_traced([hyper, *(leaf for row in rows for leaf in row)])
    lib: Any = jnp if traced else np
    with precision(unit.spec.wide):
        tables = [
            lib.stack(
                [
                    lib.stack([row[i] for i, s in enumerate(form.slots) if s.table == t])
                    for row in rows
                ]
            )
            for t in range(len(form.tables))
        ]
        moments = [[row[i] for i, s in enumerate(form.slots) if s.table is None] for row in rows]
        if unit.spec.packed:
            in_rows = pack if traced else host_rows.pack
            joined = [in_rows(unit.spec, column) for column in zip(*moments, strict=True)]
            placed = [beside(m, homes[0]) for m in joined]
        else:
            placed = [
                beside(m, home if np.shape(m) == shape else None)
                for part, home, shape in zip(moments, homes, unit.spec.shapes, strict=True)
                for m in part
            ]
    return stored(unit, [hyper, *tables, *placed], traced)


def _leaves(unit: Unit, k: int, code: str, carried: Any) -> list[Any]:
    """Return the leaves of count and state in the dtypes in which they are stored, checked."""
    spec = unit.spec
    wanted = struct_of(spec.template, spec.dtype, spec.shapes[k])
    leaves, structs = jax.tree.leaves(carried), jax.tree.leaves(wanted)
    structure: Any = jax.tree.structure(wanted)
    if jax.tree.structure(carried) != structure or any(
        np.shape(a) != s.shape for a, s in zip(leaves, structs, strict=True)
    ):
        got, expected = (jax.tree.map(describe, pair[1]) for pair in (carried, wanted))
        raise RuleError(
            f"cannot keep the state of {code} under {spec.rule_name}: it is {got}, and the rule "
            f"as it is now needs {expected}; for a fresh state, call setup"
        )
    return [_cast(a, slot.dtype) for a, slot in zip(leaves, spec.form.slots, strict=True)]


def _cast(a: Any, dtype: str) -> Any:
    if not hasattr(a, "dtype"):
        return np.asarray(a, dtype)
    return a if str(a.dtype) == dtype else a.astype(dtype)


def relaid(
    layout: Layout, arrays: Sequence[list[Any]], changes: Mapping[int, Kept]
) -> tuple[Layout, list[list[Any]]]:
    """Return layout and arrays in which some parameters have another rule and state.

    Parameters are grouped as they would be had they begun so: only what is in another unit then, or
    has changed, is written anew.

    Raises:
        RuleError: the state of a parameter is not one of its rule.
    """
    old = layout.units
    at = [layout.where(i) for i in range(len(layout.params))]
    same = all(template_of(one.rule) == old[at[i][0]].spec.template for i, one in changes.items())
    units = old if same else _regrouped(layout, changes)
    index = {unit: u for u, unit in enumerate(old)}
    new: list[list[Any]] = []
    for unit in units:
        u = index.get(unit)
        if u is not None and changes.keys().isdisjoint(unit.params):
            new.append(list(arrays[u]))
            continue
        kept = [
            changes[i] if i in changes else taken(old[at[i][0]], arrays[at[i][0]], at[i][1])
            for i in unit.params
        ]
        codes = [layout.params[i].codes[0] for i in unit.params]
        homes = [_home(old[u], arrays[u], k) for u, k in (at[i] for i in unit.params)]
        new.append(put(unit, codes, kept, homes))
    return interned(layout.params, units, layout.untrained, layout.skeleton), new


def _regrouped(layout: Layout, changes: Mapping[int, Kept]) -> tuple[Unit, ...]:
    old = layout.units
    bare = [rebuild(unit.spec.template, [0.0] * unit.spec.template.width) for unit in old]
    at = [layout.where(i) for i in range(len(layout.params))]
    return grouped(
        layout.params,
        [changes[i].rule if i in changes else bare[u] for i, (u, _) in enumerate(at)],
        [old[u].spec.weak[k] for u, k in at],
        [old[u].host for u, _ in at],
        [old[u].place for u, _ in at],
    )


def _home(unit: Unit, arrays: list[Any], k: int) -> Any:
    """Return the sharding of parameter `k`, which is that of its moments; None if it has none."""
    spec, moments = unit.spec, opened(unit.spec, arrays[1:]).moments
    for a in moments if spec.packed else moments[k]:
        if isinstance(a, jax.Array) and not is_traced_type(type(a)) and a.committed:
            if spec.packed:
                return whole(a.sharding)
            if a.shape == spec.shapes[k]:
                return a.sharding
    return None


def fresh(rule: Rule, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return the first state of a rule for a parameter of unknown value: NaN stands for it."""
    with precision(str(compute_dtype(dtype)) in ("float64", "complex128")):
        return start(rule, jnp.full(shape, jnp.nan, compute_dtype(dtype)))
