"""Norms that neither overflow nor underflow, and the scaling that clips by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def scaled_norm(dx: Any, p: float, reduce: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Return (scale, root) such that the p-norm of `dx` is `scale * root`.

    `reduce(values, how)` is `across.array` or `across.model`. The powers of 1e30 do not fit into
    float32, those of 1e-30 vanish; divided by (about) the largest element first, they are small.
    """
    if p == 2:
        found: tuple[Any, Any] = reduce(dx, "norm")
        return found
    size = jnp.abs(dx)
    if p == 0:
        return jnp.ones((), size.dtype), reduce((size != 0).astype(size.dtype), "sum")
    if p == 1:
        # A power of two divides without rounding, so that [3, 4] still has a norm of exactly 7.
        # It is the exponent that is reduced over the model: parameters of several dtypes would
        # round a number between two powers to different ones, and divide by different scales.
        scale = _power_of_two(reduce(_exponent(size), "max"), size.dtype)
        return scale, reduce(size / scale, "sum")
    # Of no element at all the maximum is -inf (and the minimum inf), but the norm is 0.
    top = reduce(size, "max")
    largest = jnp.maximum(top, 0)
    if p == math.inf:
        scale = _power_of_two(_exponent(largest), size.dtype)
        return scale, largest / scale
    if p < 0:
        return _negative(size, p, jnp.where(top < 0, 0, reduce(size, "min")), reduce)
    scale = _ordinary(largest)  # the largest term is then exactly 1, whatever p is
    return scale, _power(reduce(_power(size / scale, p), "sum"), 1 / p)


def shrink(dx: Any, scale: Any, root: Any, omega: Any) -> Any:
    """Return `dx * min(omega / (scale * root), 1)`, zeros for a bound of zero."""
    within = jnp.logical_and(scale * root <= omega, omega > 0)
    # omega / (scale * root) itself would underflow at 1 / 1e38 and turn a long step into none.
    return jnp.where(within, dx, (dx / scale) * (omega / jnp.where(root == 0, 1, root)))


def _negative(
    size: Any, p: float, least: Any, reduce: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    if p == -math.inf:
        scale = _power_of_two(_exponent(least), size.dtype)
        return scale, least / scale
    scale = _ordinary(least)
    root = _power(reduce(_power(size / scale, p), "sum"), 1 / p)
    # In the limit one element of 0 makes the sum infinite and the norm 0; `_power` left it out.
    return scale, jnp.where(least > 0, root, least)


def _power(x: Any, p: float) -> Any:
    """Return x^p for x >= 0, with 0 and a finite derivative at 0 also where 0^p has none."""
    above = x != 0  # rather than x > 0: NaN stays NaN
    return jnp.where(above, jnp.where(above, x, 1) ** p, 0)


def _ordinary(x: Any) -> Any:
    """Return x as a constant to divide by, 1 where it is 0, subnormal, infinite or NaN."""
    x, tiny = jax.lax.stop_gradient(x), float(np.finfo(x.dtype).tiny)
    ordinary = jnp.where(jnp.logical_and(x >= tiny, x < jnp.inf), x, 1)
    # XLA multiplies by the reciprocal, which above 1 / tiny is subnormal and flushed to 0.
    return jnp.minimum(ordinary, 1 / tiny)


def _exponent(x: Any) -> Any:
    """Return the exponent e of 2^e <= x < 2^(e + 1), as a number; -inf for 0."""
    x, info = jax.lax.stop_gradient(x), np.finfo(x.dtype)
    bits = jax.lax.bitcast_convert_type(x, f"int{info.bits}") >> info.nmant
    return jnp.where(x == 0, -jnp.inf, (bits + info.minexp - 1).astype(x.dtype))


def _power_of_two(e: Any, dtype: Any) -> Any:
    """Return 2^e, or half of it above 1, as a constant of `dtype`; 1 where nothing is to be scaled.

    Half, because XLA multiplies by the reciprocal, and that of 2^127 is flushed to 0.
    """
    info = np.finfo(dtype)
    e = jnp.where(e > 0, e - 1, e)
    whole = jnp.clip(e, info.minexp, info.maxexp - 1).astype(f"int{info.bits}")
    power = jax.lax.bitcast_convert_type((whole - info.minexp + 1) << info.nmant, dtype)
    # What is above the range of this dtype is another parameter's, to which all here is nothing.
    power = jnp.where(e >= info.maxexp, jnp.inf, power)
    nothing = jnp.logical_or(e < info.minexp, e == info.maxexp - 1)  # or infinite, or NaN
    return jnp.where(nothing, 1, power)
