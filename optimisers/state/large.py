"""Large arrays of host memory: read where they are, and computed into memory that is there already.

On the CPU a program of JAX reads an argument in place only if it begins where a line of the cache
does, and takes new memory for its results. NumPy's large arrays mostly begin 16 bytes later, so
that parameters and gradients would be copied; and the pages of all copies and results would be new
ones in every step, which takes longer still. Here a program is given memory from the beginning of
the line, and the results of the last step to write its own to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..arrays.ops import concretely, own_array
from .programs import Job, arguments, context_of, stepped
from .spec import Spec

LINE = 64  # bytes
LARGE = 2**25  # bytes; from here on glibc's malloc takes new pages for each array
MOST_PLACES = 4  # for which programs are compiled for one spec

Results = dict[tuple[int, int], Sequence[Any]]


class _Lines:
    """Memory from the beginning of the line in which an array begins; keeps the array alive."""

    def __init__(self, x: np.ndarray[Any, Any]) -> None:
        self.array, begin = x, x.ctypes.data
        self.before = begin % LINE
        self.__array_interface__ = {
            "data": (begin - self.before, True),
            "shape": (self.before + x.nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def elements(self) -> Any:
        """Return all of it in the array's dtype; what is before the array has no meaning."""
        return np.asarray(self).view(self.array.dtype)


def large_step(job: Job, kept: Results) -> tuple[list[Any], Any] | None:
    """Take the step of a job whose arrays are large and in host memory; None if it is another.

    kept: for each unit and its first parameter of a job, the results of the last step, which nobody
    else holds; these are replaced.
    """
    spec, orders = job.spec, job.given.grads
    arrays = [*job.xs, *(g for gs in orders for g in gs)]
    if not job.host or spec.packed or not all(map(_is_fit, arrays)):
        return None
    with context_of(job):
        if any(jax.dtypes.canonicalize_dtype(x.dtype) != x.dtype for x in arrays):
            return None  # JAX would cast, and so also what is before an array
    lines = [_Lines(x) if x.ctypes.data % LINE else x for x in arrays]
    before = tuple(x.before // x.array.itemsize if isinstance(x, _Lines) else 0 for x in lines)
    if (program := _program_at(spec, before, job.give_state)) is None:
        return None
    given = [x.elements() if isinstance(x, _Lines) else x for x in lines]
    hyper, rest, _, _, *more = arguments(job, cut=False)
    place = job.unit, job.members[0]
    with context_of(job):
        results = kept.pop(place, ())
        if len(results) != len(job.xs):
            results = [own_array(np.zeros_like(x)) for x in job.xs]
        rest, params = concretely(program, hyper, rest, tuple(results), given, *more)
    kept[place] = params
    return rest, params


def _is_fit(x: Any) -> bool:
    if not isinstance(x, np.ndarray) or x.nbytes < LARGE or not x.flags.c_contiguous:
        return False
    return x.ctypes.data % LINE % x.itemsize == 0


_places: dict[Spec, list[tuple[int, ...]]] = {}


def _program_at(spec: Spec, before: tuple[int, ...], give_state: bool) -> Any:
    """Return the program for arrays that begin so many elements after a line; None of too many."""
    known = _places.setdefault(spec, [])
    if before not in known:
        if len(known) == MOST_PLACES:
            return None
        known.append(before)
    return _program(spec, before, give_state)


@functools.lru_cache(maxsize=256)
def _program(spec: Spec, before: tuple[int, ...], give_state: bool) -> Callable[..., Any]:
    n = len(spec.shapes)

    def step(hyper: Any, rest: Any, results: Any, given: Sequence[Any], *more: Any) -> Any:
        found = zip(given, before, spec.shapes * (len(given) // n), strict=True)
        arrays = [x[k:].reshape(shape) if k else x for x, k, shape in found]
        xs, *orders = (tuple(arrays[k : k + n]) for k in range(0, len(arrays), n))
        return stepped(spec, False, hyper, rest, xs, orders, *more)

    donated = (1, 2) if give_state else (2,)
    return jax.jit(step, donate_argnums=donated, keep_unused=True)
