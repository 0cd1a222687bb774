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

from ..arrays.numbers import fits
from ..arrays.ops import is_traced_type
from ..state import State
from ..state.engine import answer_questions, closed, is_owned, opened, run
from ..state.kernel import Given
from ..state.plan import Plan, Whole
from ..state.programs import Job, begins_of, program_for
from ..state.state import Box, check_arrays, copied
from .inputs import dtype_of, shape_of

aval_of = attrgetter("aval")


def quick_step(
    state: State, leaves: Sequence[Any], orders: Sequence[Sequence[Any]], plan: Plan, write: bool
) -> tuple[State, Sequence[Any]] | None:
    """Take a step, and return the state and the new leaves of the model; None if it is not open."""
    whole, box = plan.whole, state._box
    if whole is None:
        return None
    if write and box.placed != tuple(map(id, leaves)):  # what we placed ourselves shares nothing
        return None
    units = box.layout.units
    xs, others = whole.xs(leaves), [leaves[i] for i in plan.others]
    grads = [fetch(order) for fetch, order in zip(whole.grads, orders, strict=True)]
    arrays = [*chain(*box.arrays), *xs, *chain(*grads)]
    if write and len({*map(id, arrays), *map(id, others)}) < len(arrays) + len(others):
        return None
    kinds = set(map(type, arrays))
    if len(kinds) > 1 or not _is_concrete(kinds.pop()):
        return None
    # One program refuses on its own what does not fit it; of several, the first would have run.
    alone = len(units) == 1 and _is_one_device()
    if not alone and not _is_in_order(box, whole, arrays, xs, grads):
        return None
    del arrays  # who holds the state is told by counting
    jobs = [_job(box, u, xs, grads, cut, write) for u, cut in enumerate(whole.cuts)]
    if whole.asks and len(units) > 1:
        dtypes = {job.spec.dtype for job in jobs}
        answer_questions(jobs, False, _is_one_device() and len(dtypes) == 1)
    carried, moved = [], list[Any]()
    for job in jobs:
        done = _called(whole, job)
        if done is None or isinstance(done[1][0], Tracer):
            return None  # the latter where somebody's jit is tracing, and the first program with it
        carried.append(done[0])
        moved += done[1]
    target = state if write else copied(state)
    for unit, held, each in zip(units, target._box.arrays, carried, strict=True):
        closed(unit, held, range(len(unit.params)), each)
    return target, whole.place([*moved, *others])


def _job(box: Box, u: int, xs: Any, grads: Sequence[Any], cut: tuple[int, int], write: bool) -> Job:
    unit, held, (begin, end) = box.layout.units[u], box.arrays[u], cut
    own = write and is_owned(held, unit.hypers)  # before the job holds the arrays as well
    hyper, carried = opened(unit, held)
    given = Given(tuple([gs[begin:end] for gs in grads]), None, None)
    members, codes = range(end - begin), box.layout.codes[u]
    return Job(
        u, unit.spec, hyper, carried, xs[begin:end], given, members, codes, False, own, write
    )


def _called(whole: Whole, job: Job) -> tuple[Any, Any] | None:
    """Run a job; None if the first one is refused: the general way knows why."""
    if _is_one_device():
        known = whole.programs.get((job.unit, job.give_state, job.give_params))
        program, begins = known or _program(whole, job)
        given = Given(job.given.grads, None, None, tuple(job.answers), begins)
        try:
            done: tuple[Any, Any] = program(job.hyper, job.carried, job.xs, given)
            return done
        except (TypeError, ValueError, RuntimeError):
            if not job.unit:
                return None
    return run(job, False)


def _program(whole: Whole, job: Job) -> tuple[Any, Any]:
    give = job.give_state, job.give_params
    found = (
        program_for("step", job.spec, False, *give),
        begins_of(job.spec) if job.spec.packed else (),
    )
    whole.programs[job.unit, *give] = found
    return found


@lru_cache(maxsize=1)
def _is_one_device() -> bool:
    return jax.default_backend() == "cpu" and jax.device_count() == 1


@lru_cache(maxsize=64)
def _is_concrete(cls: type) -> bool:
    return issubclass(cls, jax.Array) and not is_traced_type(cls)


def _is_in_order(
    box: Box, whole: Whole, arrays: Sequence[Any], xs: Sequence[Any],
    grads: Sequence[Sequence[Any]],
) -> bool:  # fmt: skip
    """Tell whether all arrays are such as they should be; remember them if they are."""
    if any(map(type(arrays[0]).is_deleted, arrays)):
        return False
    # The results of one program share their abstract values, so most steps are told by identity.
    avals = list(map(aval_of, arrays))
    if avals != whole.avals:
        if not _as_set_up(whole, xs, grads):
            return False
        check_arrays(box.layout, box.arrays)
        whole.avals = avals
    return True


def _as_set_up(whole: Whole, xs: Sequence[Any], grads: Sequence[Sequence[Any]]) -> bool:
    """Tell whether all shapes and dtypes are those of the state."""
    if tuple(map(dtype_of, xs)) != whole.dtypes:
        return False
    given = {dtype for gs in grads for dtype in map(dtype_of, gs)}
    if not all(fits(dtype, mine) for dtype in given for mine in set(whole.dtypes)):
        return False
    return all(tuple(map(shape_of, some)) == whole.shapes for some in (xs, *grads))
