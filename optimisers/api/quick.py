"""The quick way of a step: the programs and numbers of the general way, fewer questions in Python.

It is open where nothing can be missing, shared or refused: all arrays are JAX's and concrete, each
parameter is one leaf with a gradient of its own, none is frozen, and no rule can raise for a value.
All arrays are then looked at as one row, most of them by identity alone. Whatever is unusual is
left to the general way, which also knows what to say about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from ..arrays.numbers import fits
from ..arrays.ops import is_traced_type
from ..state import State, Unit
from ..state.engine import answer_questions, closed, is_owned, opened, run
from ..state.kernel import Carried, Given
from ..state.plan import Plan, Whole
from ..state.programs import Job, begins_of, program_for
from ..state.state import Box, check_arrays, copied
from .inputs import dtype_of, shape_of

aval_of = attrgetter("aval")


def quick_step(
    state: State, flat: Sequence[Any], plan: Plan, write: bool
) -> tuple[State, Sequence[Any]] | None:
    """Take a step, and return the state and the new leaves of the model; None if it is not open.

    flat: the leaves of the model, and after them those of the gradients.
    """
    whole, box = plan.whole, state._box
    if whole is None:
        return None
    given = whole.arrays(flat)
    if write and not _is_ours_alone(box, whole, flat, given):
        return None
    if not _are_concrete(set(map(type, given))):
        return None
    for begin, _ in whole.cuts:  # the parameters of a unit are all at one place
        if type(given[begin].sharding) is not SingleDeviceSharding:
            return None  # the program might give it another one, be it of the same meaning
    # One program refuses on its own what does not fit it; of several, the first would have run.
    alone = len(box.arrays) == 1 and _is_one_device()
    if not alone and not _is_in_order(box, whole, given):
        return None
    done = (_one_unit if alone else _several_units)(box, whole, given, write)
    if done is None or isinstance(done[1][0], Tracer):
        return None  # the latter where somebody's jit is tracing, and the first program with it
    target = state if write else copied(state)
    for u, carried in enumerate(done[0]):
        unit = box.layout.units[u]
        closed(unit, target._box.arrays[u], range(len(unit.params)), carried)
    new_leaves = whole.place([*done[1], *whole.others(flat)])
    if write:
        box.placed = tuple(map(id, new_leaves))
    return target, new_leaves


def _is_ours_alone(box: Box, whole: Whole, flat: Sequence[Any], given: tuple[Any, ...]) -> bool:
    """Tell whether the parameters may be given away: we placed them, and none is a gradient too.

    What a program returned shares nothing; and nobody else has the state, or it is not given away.
    """
    if box.placed != tuple(map(id, flat[: whole.leaves])):
        return False
    return set(map(id, given[len(whole.shapes) :])).isdisjoint(box.placed)


def _one_unit(
    box: Box, whole: Whole, given: tuple[Any, ...], write: bool
) -> tuple[list[Any], Sequence[Any]] | None:
    """Run the program of the only unit; None if it is refused: the general way knows why."""
    (unit,), (held,), n = box.layout.units, box.arrays, len(whole.shapes)
    own = write and is_owned(held, unit.hypers)  # before anything else holds the arrays as well
    hyper, carried = opened(unit, held)
    grads = tuple([given[i : i + n] for i in range(n, len(given), n)])
    program, begins = whole.programs.get((0, own, write)) or _program(whole, 0, unit, own, write)
    try:
        *carried, moved = program(hyper, *carried, given[:n], grads, None, None, (), begins)
    except (TypeError, ValueError, RuntimeError):
        return None
    return [Carried(*carried)], moved


def _several_units(
    box: Box, whole: Whole, given: tuple[Any, ...], write: bool
) -> tuple[list[Any], Sequence[Any]]:
    jobs = [_job(box, whole, u, given, write) for u in range(len(box.arrays))]
    if whole.asks:
        dtypes = {job.spec.dtype for job in jobs}
        answer_questions(jobs, False, _is_one_device() and len(dtypes) == 1)
    each, moved = [], list[Any]()
    for job in jobs:
        carried, params = _called(whole, box.layout.units[job.unit], job)
        each.append(carried)
        moved += params
    return each, moved


def _job(box: Box, whole: Whole, u: int, given: tuple[Any, ...], write: bool) -> Job:
    unit, held, n = box.layout.units[u], box.arrays[u], len(whole.shapes)
    begin, end = whole.cuts[u]
    own = write and is_owned(held, unit.hypers)
    hyper, carried = opened(unit, held)
    grads = tuple([given[i + begin : i + end] for i in range(n, len(given), n)])
    xs, members, codes = given[begin:end], range(end - begin), box.layout.codes[u]
    mine = Given(grads, None, None)
    return Job(u, unit.spec, hyper, carried, xs, mine, members, codes, False, own, write)


def _called(whole: Whole, unit: Unit, job: Job) -> tuple[Any, Any]:
    """Run a job; what only the call itself can notice, the general way mends."""
    if _is_one_device():
        known = whole.programs.get((job.unit, job.give_state, job.give_params))
        program, begins = known or _program(whole, job.unit, unit, job.give_state, job.give_params)
        given = job.given.grads, None, None, tuple(job.answers), begins
        try:
            *carried, params = program(job.hyper, *job.carried, job.xs, *given)
            return Carried(*carried), params
        except (ValueError, jax.errors.JaxRuntimeError):
            pass
    return run(job, False)


def _program(whole: Whole, u: int, unit: Unit, own: bool, write: bool) -> tuple[Any, Any]:
    program = program_for("step", unit.spec, False, own, write)
    found = program, begins_of(unit.spec) if unit.spec.packed else ()
    whole.programs[u, own, write] = found
    return found


@lru_cache(maxsize=1)
def _is_one_device() -> bool:
    return jax.default_backend() == "cpu" and jax.device_count() == 1


def _are_concrete(classes: set[type]) -> bool:
    """Tell whether all arrays are of JAX's one class of them: no tracers, no keys, not NumPy's."""
    return len(classes) == 1 and _is_concrete(*classes)


@lru_cache(maxsize=64)
def _is_concrete(cls: type) -> bool:
    return issubclass(cls, jax.Array) and not is_traced_type(cls)


def _is_in_order(box: Box, whole: Whole, given: tuple[Any, ...]) -> bool:
    """Tell whether all arrays are such as they should be; remember them if they are."""
    arrays = [*given, *chain(*box.arrays)]
    if not _are_concrete(set(map(type, arrays))):
        return False
    if any(map(type(arrays[0]).is_deleted, arrays)):
        return False
    # The results of one program share their abstract values, so most steps are told by identity.
    avals = list(map(aval_of, arrays))
    if avals != whole.avals:
        if not _as_set_up(whole, given):
            return False
        check_arrays(box.layout, box.arrays)
        whole.avals = avals
    return True


def _as_set_up(whole: Whole, given: tuple[Any, ...]) -> bool:
    """Tell whether all shapes and dtypes are those of the state."""
    n = len(whole.shapes)
    if tuple(map(dtype_of, given[:n])) != whole.dtypes:
        return False
    grads = set(map(dtype_of, given[n:]))
    if not all(fits(dtype, mine) for dtype in grads for mine in set(whole.dtypes)):
        return False
    return tuple(map(shape_of, given)) == whole.shapes * (len(given) // n)
