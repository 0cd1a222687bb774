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
from ..state import State
from ..state.engine import answer_questions, is_owned, run, whole_job
from ..state.plan import Plan, Whole
from ..state.programs import Job, begins_of, program_for
from ..state.state import Box, check_arrays, copied
from .inputs import dtype_of, shape_of
from .staged import staged_step

aval_of = attrgetter("aval")


def quick_step(
    state: State, flat: list[Any], plan: Plan, write: bool
) -> tuple[State, Sequence[Any]] | None:
    """Take a step, and return the state and the new leaves of the model; None if it is not open.

    flat: the leaves of the model, and after them those of the gradients.
    """
    whole, box = plan.whole, state._box
    if whole is None:
        return None
    # What we placed ourselves shares nothing, so it may be given away.
    if write and box.placed != tuple(map(id, flat[: whole.leaves])):
        return None
    given = whole.arrays(flat)
    if whole.host:
        return (state, flat) if write and staged_step(box, whole, given) else None
    classes = set(map(type, given))
    if len(classes) > 1 or not _is_concrete(*classes):
        return None
    if not ((write and box.last is not None) or _is_simple(whole, given)):
        return None
    if write and not set(map(id, given[len(whole.shapes) :])).isdisjoint(box.placed):
        return None  # a parameter is a gradient too, so it cannot be given away
    if not write:
        state = copied(state)
        box = state._box
    # One program refuses on its own what else does not fit; of several, the first would have run.
    alone = len(whole.parts) == 1 and _is_one_device()
    params = (_one_unit if alone else _several_units)(box, whole, given, write)
    if params is None:
        return None
    leaves = whole.place((*params, *whole.others(flat)) if whole.others else params)
    if write:
        box.placed, box.last = tuple(map(id, leaves)), whole
        whole.classes = classes
    return state, leaves


def _is_simple(whole: Whole, given: tuple[Any, ...]) -> bool:
    """Tell whether programs will return arrays as they were: those with a mesh might lose it."""
    firsts = (part(given)[0][0] for part in whole.parts)  # a unit is at one place
    return all(type(x.sharding) is SingleDeviceSharding for x in firsts)


def _one_unit(box: Box, whole: Whole, given: tuple[Any, ...], write: bool) -> Sequence[Any] | None:
    """Run the program of the only unit; None if it is refused: the general way knows why."""
    held = box.arrays[0]
    rest = held[1:]
    own = write and is_owned(rest)
    program, begins = whole.programs.get((0, own, write)) or _program(box, whole, 0, own, write)
    xs, *grads = whole.parts[0](given)
    try:
        rest, params = program(held[0], rest, xs, grads, begins)
    except (TypeError, ValueError, RuntimeError):
        return None
    if isinstance(params[0], Tracer):
        return None  # somebody's jit is tracing, and so our program
    held[1:] = rest
    moved: Sequence[Any] = params
    return moved


def _several_units(
    box: Box, whole: Whole, given: tuple[Any, ...], write: bool
) -> Sequence[Any] | None:
    """Run one program after another, all of which must fit."""
    if not _is_in_order(box, whole, given):
        return None
    jobs = []
    for u, part in enumerate(whole.parts):
        xs, *grads = part(given)
        jobs.append(whole_job(box.layout, u, box.arrays[u], xs, grads, write))
    if whole.asks:
        dtypes = {job.spec.dtype for job in jobs}
        answer_questions(jobs, False, _is_one_device() and len(dtypes) == 1)
    each, moved = [], list[Any]()
    for job in jobs:
        rest, params = _called(box, whole, job)
        if isinstance(params[0], Tracer):
            return None
        each.append(rest)
        moved += params
    for held, rest in zip(box.arrays, each, strict=True):
        held[1:] = rest
    return moved


def _called(box: Box, whole: Whole, job: Job) -> tuple[list[Any], Sequence[Any]]:
    """Run a job; what only the call itself can notice, the general way mends."""
    if _is_one_device():
        key = job.unit, job.give_state, job.give_params
        program, begins = whole.programs.get(key) or _program(box, whole, *key)
        unusual = (None, None, tuple(job.answers)) if job.answers else ()
        try:
            rest, params = program(
                job.hyper, job.rest, job.xs, list(job.given.grads), begins, *unusual
            )
            return rest, params
        except (ValueError, jax.errors.JaxRuntimeError):
            pass
    return run(job, False)


def _program(box: Box, whole: Whole, u: int, own: bool, write: bool) -> tuple[Any, Any]:
    spec = box.layout.units[u].spec
    program = program_for("step", spec, False, own, write)
    found = program, begins_of(spec)
    whole.programs[u, own, write] = found
    return found


@lru_cache(maxsize=1)
def _is_one_device() -> bool:
    return jax.default_backend() == "cpu" and jax.device_count() == 1


@lru_cache(maxsize=64)
def _is_concrete(cls: type) -> bool:
    return issubclass(cls, jax.Array) and not is_traced_type(cls)


def _is_in_order(box: Box, whole: Whole, given: tuple[Any, ...]) -> bool:
    """Tell whether all arrays are such as they should be; remember them if they are."""
    arrays = [*given, *chain(*box.arrays)]
    if len(set(map(type, arrays))) > 1 or any(map(type(arrays[0]).is_deleted, arrays)):
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
