"""adjust: other hyper-parameters, or another rule, between steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.numbers import precision
from ..errors import ArgumentError, RuleError
from ..rules.checks import names_of, narrowed, unknown_field
from ..rules.fields import Template, numbers_of, rebuild, template_of
from ..rules.pick import Pick, picked, walked, with_picked
from ..rules.refit import follows, refitted
from ..rules.rule import Rule, check_schedules
from ..state import State, Unit
from ..state.build import stored
from ..state.relayout import Kept, carried_at, fresh, is_traced, relaid, rule_at, short
from ..state.state import Box, checked, copied
from ..tree.select import Where
from .assign import check_complex, check_rule
from .select import selected

Change = Callable[[Rule], Rule]


def adjust(
    state: Any, eta: Any = None, where: Where = None, *, rule: Pick = None, **fields: Any
) -> Any:
    """Return a state (or a rule) with other hyper-parameters; moments and counts are kept.

    The given state is left as it was; both can be used afterwards. Other numbers compile nothing.

    Args:
        state: the whole, a part (`state["enc"]`), or a bare rule.
        eta: the learning rate, for every rule that has one: a number or, as a schedule, a function
            of the number of applied steps. Or a rule: it replaces the one there was, and takes over
            its moments and counts; decay, clipping, `MixedPrecision` and the like may come and go.
        where: which parameters; all if None.
        rule: which rule of a chain, by its class or its place; all if None.
        **fields: other fields by name, for every rule that has them.

    Returns:
        A new state; for a rule, a new rule.

    Raises:
        RuleError: a field that no selected rule has (the nearest is suggested); a value out of its
            range; a number where there is a schedule; a rule that the state does not fit.
        StructureError: `where` selects nothing.
        ArgumentError: nothing to adjust, or something that is neither a state nor a rule.

    Examples:
        >>> state = setup(OptimiserChain(ClipGrad(2.0), Adam()), {"w": np.ones(3)})
        >>> adjust(state, 0.01, delta=2.5)["w"].rule
        OptimiserChain(ClipGrad(delta=2.5), Adam(eta=0.01, beta=(0.9, 0.999), epsilon=1e-08))
        >>> adjust(state, Adam(0.01))["w"].rule
        Adam(eta=0.01, beta=(0.9, 0.999), epsilon=1e-08)
    """
    if isinstance(state, Rule):
        return _change([state], eta, rule, fields)(state)
    return _adjusted(copied(checked(state)), eta, where, rule, fields)


def adjust_(
    state: State, eta: Any = None, where: Where = None, *, rule: Pick = None, **fields: Any
) -> State:
    """Set other hyper-parameters in a state, or through a part in the whole; returns it.

    Args:
        state: the whole, or a part.
        eta: as in `adjust`.
        where: as in `adjust`.
        rule: as in `adjust`.
        **fields: as in `adjust`.

    Returns:
        The given state.

    Raises:
        OptimiserError: as in `adjust`; nothing is changed then.

    Examples:
        >>> state = setup(Descent(0.1), {"enc": np.ones(2), "dec": np.ones(2)})
        >>> _ = adjust_(state["enc"], 0.01)
        >>> state["enc"].rule, state["dec"].rule
        (Descent(eta=0.01), Descent(eta=0.1))
    """
    return _adjusted(checked(state), eta, where, rule, fields)


def _change(rules: Sequence[Rule], eta: Any, pick: Pick, fields: dict[str, Any]) -> Change:
    """Return what happens to each rule; raise where none of `rules` has what is given."""
    if isinstance(eta, Rule):
        if fields:
            raise ArgumentError(f"adjust takes a whole rule or fields, not both: got {eta!r}")
        _all_picked(rules, pick)
        check_rule(eta)
        return lambda old: with_picked(old, pick, lambda _: eta)
    given = {**fields} if eta is None else {"eta": eta, **fields}
    if not given:
        raise ArgumentError("adjust needs a learning rate, a rule, or fields by name")
    mine = _all_picked(rules, pick)
    known = set().union(*map(names_of, mine))
    if unknown := set(given) - known:
        raise unknown_field(unknown, mine, known)
    return lambda old: with_picked(old, pick, functools.partial(_with_fields, given, set()))


def _all_picked(rules: Sequence[Rule], pick: Pick) -> list[Rule]:
    """Return the rules that `pick` means in any of these; raise where it is in none."""
    found = [part for rule in rules for part in picked(rule, pick)]
    if not found:
        name = getattr(pick, "__name__", pick)
        raise RuleError(f"cannot pick {name}: there is none in {type(rules[0]).__name__}")
    return found


def _with_fields(given: dict[str, Any], traced: set[type], rule: Rule) -> Any:
    """Return a rule with the fields that it has; `traced` are classes whose schedules are known."""
    own = {name: value for name, value in given.items() if name in names_of(rule)}
    if not own:
        return rule
    new = rule.adjust(**own)
    if type(rule) not in traced and any(map(callable, own.values())):
        traced.add(type(rule))
        for part in walked(new):
            check_schedules(part)
    return new


def _adjusted(state: State, eta: Any, where: Where, pick: Pick, fields: dict[str, Any]) -> State:
    """Change the rules of the selected parameters: their numbers alone, if that is all there is."""
    box = state._box
    indices = set(selected(state, where))
    touched = [u for u, unit in enumerate(box.layout.units) if indices.intersection(unit.params)]
    units = [box.layout.units[u] for u in touched]
    kinds = dict.fromkeys(unit.spec.template for unit in units)
    change = _change(list(map(_bare, kinds)), eta, pick, fields)
    new, known = {}, dict[Any, Any]()
    for u, unit in zip(touched, units, strict=True):
        mask = [i in indices for i in unit.params]
        table = _table(unit, box.arrays[u][0], mask, change, known)
        if table is None:
            _relay(box, indices, change)
            return state
        new[u] = table
    for u, table in new.items():
        box.arrays[u][0] = table
    return state


@functools.lru_cache(maxsize=512)
def _bare(template: Template) -> Any:
    """Return a rule without its numbers, to see what there is."""
    return rebuild(template, [0.0] * template.width)


def _table(unit: Unit, table: Any, mask: list[bool], change: Change, known: dict[Any, Any]) -> Any:
    """Return the hyper-parameters of a unit after a change where `mask`, if only they change.

    known: what became of the rules that were changed already; most units have the same.
    """
    template, lib = unit.spec.template, jnp if is_traced([table]) else np
    if follows(_bare(template)):
        return None
    with precision(unit.spec.wide):
        table = lib.asarray(table)
        if lib is np:
            rows = _rows(table, template, change, known)
        else:
            rows = _columns(table, template, change)
        if rows is None:
            return None
        lib = jnp if is_traced([table, *rows]) else np
        columns = [lib.broadcast_to(lib.asarray(v), len(mask)) for v in rows]
        if lib is jnp:
            columns = [column.astype(table.dtype) for column in columns]
        wanted = lib.stack(columns, axis=1) if columns else table
        if lib is np:
            wanted = narrowed(template, wanted, table.dtype)
        whole = lib.where(np.asarray(mask)[:, None], wanted, table)
    return stored(unit, [whole], lib is jnp)[0]


def _rows(
    table: Any, template: Template, change: Change, known: dict[Any, Any]
) -> list[Any] | None:
    """Return new columns: the change is made once for each distinct rule."""
    distinct, which = table[:1], np.zeros(len(table), int)
    if not (table == distinct).all():
        distinct, which = np.unique(table, axis=0, return_inverse=True)
    keys = [(template, table.dtype, row.tobytes()) for row in distinct]
    for key, row in zip(keys, distinct, strict=True):
        if key not in known:
            known[key] = _numbers(template, change(rebuild(template, list(map(short, row)))))
    rules = [known[key] for key in keys]
    if any(numbers is None for numbers in rules):
        return None
    columns = zip(*rules, strict=True)
    return [values[0] if len(rules) == 1 else np.stack(values)[which] for values in columns]


def _numbers(template: Template, rule: Rule) -> list[Any] | None:
    """Return the numbers of a rule; None if it is no longer of the template."""
    return numbers_of(rule) if template_of(rule) == template else None


def _columns(table: Any, template: Template, change: Change) -> list[Any] | None:
    """Return new columns where the numbers are traced: the change is made for all rules at once."""
    changed: list[list[Any] | None] = []

    def one(row: Any) -> list[Any]:
        changed.append(_numbers(template, change(rebuild(template, list(row)))))
        return changed[0] or []

    columns = jax.vmap(one)(table)
    return None if changed[0] is None else columns


def _relay(box: Box, indices: set[int], change: Change) -> None:
    """Change the rules of parameters whose state, or whose program, changes with them."""
    layout, changes = box.layout, {}
    for i in indices:
        u, k = layout.where(i)
        unit, param = layout.units[u], layout.params[i]
        old = rule_at(unit, box.arrays[u], k)
        new = change(old)
        if new is old:
            continue
        check_complex(new, param)
        count, state = carried_at(unit, box.arrays[u], k)
        first = functools.partial(fresh, dtype=param.dtype, shape=param.shape)
        try:
            with precision(unit.spec.wide):
                changes[i] = Kept(new, count, refitted(new, old, state, first))
        except RuleError as error:
            raise RuleError(f"{param.codes[0]}: {error}") from None
    box.become(*relaid(layout, box.arrays, changes))
