"""Packs of host memory, laid out in rows by NumPy, so that a program gets one array for many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

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
    flat = rows.reshape(-1)
    return tuple(
        flat[first : first + math.prod(shape)].reshape(shape)
        for first, shape in zip(spec.begins, spec.shapes, strict=True)
    )
