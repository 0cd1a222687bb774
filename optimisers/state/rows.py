"""Packs of host memory, laid out in rows by NumPy, so that a program gets one array for many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.adapter import Bulk
from ..arrays.numbers import compute_dtype
from .spec import WIDTH, Spec


def pack(spec: Spec, xs: Sequence[Any]) -> Any:
    """Copy small NumPy arrays to rows of WIDTH elements; a missing one (None) becomes zeros."""
    dtypes = {x.dtype for x in xs if x is not None}
    # NumPy knows no common dtype of float16 and bfloat16; both are computed in float32.
    dtype = (
        dtypes.pop()
        if len(dtypes) == 1
        else np.result_type(*map(compute_dtype, (spec.dtype, *dtypes)))
    )
    flat = np.zeros(len(spec.owner) * WIDTH, dtype)
    for x, first, shape in zip(xs, spec.begins, spec.shapes, strict=True):
        if x is not None:
            flat[first : first + math.prod(shape)] = x.reshape(-1)
    return flat.reshape(-1, WIDTH)


def unpack(spec: Spec, rows: Any) -> tuple[Any, ...]:
    """Return views of the rows, shaped as the parameters."""
    return _cut(spec, rows.reshape(-1))


def _cut(spec: Spec, flat: Any) -> tuple[Any, ...]:
    return tuple(
        flat[first : first + math.prod(shape)].reshape(shape)
        for first, shape in zip(spec.begins, spec.shapes, strict=True)
    )


class Stage:
    """Where the parameters and gradients of a host pack are laid out in rows, step after step.

    buffers: the rows of the parameters, and of each order of gradients. parts: for each buffer the
    places of its parameters, as arrays of their library.
    """

    def __init__(self, spec: Spec, bulk: Bulk, xs: Sequence[Any], orders: int) -> None:
        self.spec, self.bulk, self.facts = spec, bulk, bulk.facts(xs)
        self.kept = tuple(xs)  # alive, so that no other array gets the identity of one of them
        size = len(spec.owner) * WIDTH
        self.buffers = [np.zeros(size, spec.dtype) for _ in range(1 + orders)]
        self.parts = [list(map(bulk.shared, _cut(spec, flat))) for flat in self.buffers]

    def load(self, xs: Sequence[Any], grads: Sequence[Sequence[Any]]) -> list[Any] | None:
        """Return parameters and gradients in rows, if the former are where they were before."""
        if len(grads) != len(self.buffers) - 1 or self.bulk.facts(xs) != self.facts:
            return None
        if not all(self.bulk.fits(gs, self.spec.dtype, self.spec.shapes) for gs in grads):
            return None
        for parts, values in zip(self.parts, (xs, *grads), strict=True):
            self.bulk.copy(parts, values)
        return [flat.reshape(-1, WIDTH) for flat in self.buffers]

    def store(self, xs: Sequence[Any], rows: Any) -> None:
        """Copy new parameters from rows to where they belong."""
        np.copyto(self.buffers[0], np.asarray(rows).reshape(-1))
        self.bulk.copy(xs, self.parts[0])
