"""The general way of a step: each unit is checked on its own, whatever is missing or shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from ..arrays import adapter_of
from ..arrays.ops import copied, is_traced_type, total
from ..arrays.overlap import overlapping
from ..errors import AliasError
from ..state import Layout, State
from ..state.engine import answer_questions, check, closed, jobs_for, run_all
from ..state.plan import Plan
from ..state.programs import Job, Work, keep_shared, rehearse
from ..state.state import check_arrays, copied as copied_state
from . import inputs


class Call(NamedTuple):
    """One call, checked and cut into jobs: nothing is computed or written yet."""

    layout: Layout
    leaves: Sequence[Any]
    plan: Plan
    jobs: list[Job]
    traced: bool
    write: bool


def prepared(state: State, flat: list[Any], plan: Plan, tied: str, write: bool) -> Call:
    """Check the arrays of a step and cut it into jobs; raise before anything is written."""
    box = state._box
    layout = box.layout
    leaves, *found = plan.split(flat)
    orders = [[*order, None] for order in found]
    for prunes, order in zip(plan.prunes, orders, strict=True):
        inputs.check_pruned(prunes, order)
    check_arrays(layout, box.arrays)
    traced = _is_traced(box.arrays, leaves, *orders)
    write = write and not traced
    work = _work(layout, plan, leaves, orders, tied, traced)
    if write:
        _check_aliases(layout, plan, leaves, work)
    jobs = jobs_for(layout, box.arrays, work, write, traced)
    if write and box.placed != tuple(map(id, leaves)):  # what we placed ourselves shares nothing
        keep_shared(jobs, leaves)
    answer_questions(jobs, traced)
    check(jobs, traced)
    if write and len(jobs) > 1:
        rehearse(jobs)
    return Call(layout, leaves, plan, jobs, traced, write)


def general_step(state: State, call: Call) -> tuple[State, Sequence[Any]]:
    """Take a step that was checked and cut into jobs; return the state and the new leaves."""
    layout, leaves, plan, jobs, traced, write = call
    kept = state._box.kept if write else None
    results = run_all(jobs, traced, kept=kept)
    new_leaves = _placed(layout, plan, leaves, results, write, traced)
    target = state if write else copied_state(state)
    for job, carried, _ in results:
        closed(layout.units[job.unit], target._box.arrays[job.unit], job, carried)
    if write:
        target._box.placed, target._box.last = tuple(map(id, new_leaves)), None
    return target, new_leaves


def _is_traced(arrays: Sequence[list[Any]], *leaves: Sequence[Any]) -> bool:
    types: set[type] = set()
    for some in (*arrays, *leaves):
        types.update(map(type, some))
    return any(map(is_traced_type, types))


def _work(
    layout: Layout, plan: Plan, leaves: Sequence[Any], orders: Sequence[Sequence[Any]], tied: str,
    traced: bool,
) -> dict[int, Work]:  # fmt: skip
    """Fetch and check what each unit is to work on; units outside this part have nothing."""
    work: dict[int, Work] = {}
    ties = [_by_unit(found) for found in plan.tied]
    for u, unit in enumerate(layout.units):
        if not plan.inside[u]:
            continue
        xs = inputs.parameters(layout, unit, plan.firsts[u](leaves), plan.inside[u])
        grads = []
        for order, fetch, tie in zip(orders, plan.grads, ties, strict=True):
            gs = list(inputs.gradients(layout, unit, fetch[u](order)))
            for k, indices in tie.get(u, ()):
                gs[k] = _total(layout, unit, k, [order[i] for i in indices], tied)
            inputs.check_gradients(layout, unit, gs)
            grads.append(tuple(_on_side(unit, g, traced) for g in gs))
        work[u] = Work(xs, tuple(grads))
    return work


def _by_unit(tied: Any) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
    found: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for u, k, indices in tied:
        found.setdefault(u, []).append((k, indices))
    return found


def _total(layout: Layout, unit: Any, k: int, parts: Sequence[Any], tied: str) -> Any:
    """Return the gradient of a tied parameter from those at its places."""
    param = layout.params[unit.params[k]]
    known = []
    for part, code in zip(parts, param.codes, strict=True):
        g = inputs.gradient(part, code)
        if g is not None:
            inputs.check_one(g, code, param.shape, param.dtype)
            known.append(g)
    if not known:
        return None
    return known[0] if tied == "total" else total(known, param.dtype)


def _on_side(unit: Any, g: Any, traced: bool) -> Any:
    """Bring a gradient to where its unit is computed."""
    if g is None or isinstance(g, Tracer):
        return g
    if traced:
        return copied(g) if isinstance(g, np.ndarray) else g
    return np.asarray(g) if unit.host else g


def _check_aliases(
    layout: Layout, plan: Plan, leaves: Sequence[Any], work: dict[int, Work]
) -> None:
    """Refuse overlapping host memory; mark units whose arrays are needed after the call."""
    host = [(i, x) for u, w in work.items() if layout.units[u].host
            for i, x in zip(layout.units[u].params, w.xs, strict=True)]  # fmt: skip
    pair = overlapping([x for _, x in host])
    if pair is not None:
        a, b = (layout.params[host[i][0]].codes[0] for i in pair)
        raise AliasError(
            f"cannot write {a} and {b} in place: they overlap in memory without being one "
            "parameter; copy one of them, or use update"
        )
    device = [w for u, w in work.items() if not layout.units[u].host]
    used: dict[int, int] = {}
    for i in plan.others:
        used[id(leaves[i])] = 1
    for w in device:
        for x in (*w.xs, *(g for gs in w.grads for g in gs)):
            used[id(x)] = used.get(id(x), 0) + 1
    for w in device:
        w.alias = any(used[id(x)] > 1 for x in w.xs)


def _placed(
    layout: Layout, plan: Plan, leaves: Sequence[Any], results: Sequence[tuple[Job, Any, Any]],
    write: bool, traced: bool,
) -> list[Any]:  # fmt: skip
    """Put each result at every place of its parameter, in the parameter's own kind of array."""
    new = list(leaves)
    if not traced:
        # JAX may still be reading host memory: what the caller is free to overwrite once we return,
        # and what we are about to write, if one parameter is the gradient of another.
        jax.block_until_ready([params for job, _, params in results if job.reads_host])
    for job, _, params in results:
        unit = layout.units[job.unit]
        for at in job.movable:
            value, places = params[at], plan.places[unit.params[job.members[at]]]
            if not places:
                continue
            x = leaves[places[0]]
            if traced or (isinstance(x, jax.Array) and not unit.host):
                for i in places:
                    new[i] = value
                continue
            _place_on_host(new, leaves, places, np.asarray(value), write)
    return new


def _place_on_host(
    new: list[Any], leaves: Sequence[Any], places: Sequence[int], value: Any, write: bool
) -> None:
    x = leaves[places[0]]
    adapter = adapter_of(type(x))
    assert adapter is not None
    if write and adapter.may_write(x):
        result = adapter.write(x, value)
        mine = adapter.identity(x) if len(places) > 1 else None
        for i in places[1:]:
            # The same memory under another object stays that object.
            if adapter_of(type(leaves[i])) is not adapter or adapter.identity(leaves[i]) != mine:
                new[i] = result
        return
    result = adapter.like(x, value)
    for i in places:
        new[i] = result
