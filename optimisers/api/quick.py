"""The quick way of a step: the programs and numbers of the general way, fewer questions in Python.

It is open where nothing can be missing, shared or refused: all arrays are JAX's and concrete, each
parameter is one leaf with a gradient of its own, none is frozen, and no rule asks for a reduction.
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

from ..arrays.ops import is_traced_type
from ..state import State
from ..state.engine import closed, is_owned, opened, run
from ..state.kernel import Given
from ..state.plan import Plan, Whole
from ..state.programs import Job, begins_of, program_for
from ..state.state import Box, check_arrays, copied
from .inputs import dtype_of, fits, shape_of

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
    each = zip(units, box.arrays, strict=True)
    owned = [write and is_owned(held, unit.hypers) for unit, held in each]
    xs = whole.xs(leaves)
    grads = [fetch(order) for fetch, order in zip(whole.grads, orders, strict=True)]
    others = [leaves[i] for i in plan.others]
    arrays = [*chain(*box.arrays), *xs, *chain(*grads)]
    if write and len({*map(id, arrays), *map(id, others)}) < len(arrays) + len(others):
        return None
    if not _is_in_order(box, whole, arrays, xs, grads):
        return None
    carried, moved = [], list[Any]()
    for u, (begin, end) in enumerate(whole.cuts):
        given = Given(tuple([gs[begin:end] for gs in grads]), None, None)
        each, params = _called(box, u, xs[begin:end], given, owned[u], write)
        if isinstance(params[0], Tracer):
            return None  # somebody's jit is tracing, and the first program with it
        carried.append(each)
        moved += params
    target = state if write else copied(state)
    for u, each in enumerate(carried):
        closed(units[u], target._box.arrays[u], range(len(units[u].params)), each)
    return target, whole.place([*moved, *others])


def _called(box: Box, u: int, xs: Any, given: Given, own: bool, write: bool) -> Any:
    """Run the program of a unit; what only the call itself can notice is for the general way."""
    unit = box.layout.units[u]
    spec, (hyper, carried) = unit.spec, opened(unit, box.arrays[u])
    if _is_one_device():
        begins = begins_of(spec) if spec.packed else ()
        program = program_for("step", spec, False, own, write)
        try:
            return program(hyper, carried, xs, given._replace(begins=begins))
        except (ValueError, jax.errors.JaxRuntimeError):
            pass
    codes = box.layout.codes[u]
    job = Job(u, spec, hyper, carried, xs, given, range(len(xs)), codes, False, own, write)
    return run(job, False)


@lru_cache(maxsize=1)
def _is_one_device() -> bool:
    return jax.default_backend() == "cpu" and jax.device_count() == 1


def _is_in_order(
    box: Box, whole: Whole, arrays: Sequence[Any], xs: Sequence[Any],
    grads: Sequence[Sequence[Any]],
) -> bool:  # fmt: skip
    """Tell whether all arrays are such as they should be; remember them if they are."""
    kinds: set[Any] = set(map(type, arrays))
    kind = kinds.pop()
    if kinds or not _is_concrete(kind) or any(map(kind.is_deleted, arrays)):
        return False
    # The results of one program share their abstract values, so most steps are told by identity.
    avals = list(map(aval_of, arrays))
    if avals != whole.avals:
        if not _as_set_up(whole, xs, grads):
            return False
        check_arrays(box.layout, box.arrays)
        whole.avals = avals
    return True


@lru_cache(maxsize=64)
def _is_concrete(cls: type) -> bool:
    return issubclass(cls, jax.Array) and not is_traced_type(cls)


def _as_set_up(whole: Whole, xs: Sequence[Any], grads: Sequence[Sequence[Any]]) -> bool:
    """Tell whether all shapes and dtypes are those of the state."""
    if tuple(map(dtype_of, xs)) != whole.dtypes:
        return False
    given = {dtype for gs in grads for dtype in map(dtype_of, gs)}
    if not all(fits(dtype, mine) for dtype in given for mine in set(whole.dtypes)):
        return False
    return all(tuple(map(shape_of, some)) == whole.shapes for some in (xs, *grads))
