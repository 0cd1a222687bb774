"""The one place where 16-bit numbers become 32-bit ones before a rule sees them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ..arrays.numbers import compute_dtype, is_wide, precision, standard_promotion


def widened(function: Callable[..., Any], first: int) -> Callable[..., Any]:
    """Wrap `init` or `apply` so that its arrays, from argument `first` on, are wide enough."""

    @functools.wraps(function)
    def wide(self: Any, *args: Any, **kwargs: Any) -> Any:
        dtypes = [d for a in args[first:] if (d := getattr(a, "dtype", None)) is not None]
        with precision(any(map(is_wide, dtypes))), standard_promotion(*dtypes):
            return function(self, *args[:first], *map(_widen, args[first:]), **kwargs)

    return wide


def _widen(x: Any) -> Any:
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return x.astype(compute_dtype(x.dtype))
    return x
