"""Sums of squares that neither overflow nor underflow, and can be added over many arrays.

The squares of 1e30 do not fit into float32, those of 1e-30 vanish. So there are sums at several
scales, powers of two, of which one is always good; almost always it is the plain one, and the
others are only worked out where it is not. One pass over the numbers is then enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .numeric import abs2, safe_sqrt

# Numbers are multiplied by these powers of two before they are squared: the squares of float64 need
# the outer ones. From one to the next the good ranges overlap, for sums of up to 2^40 squares.
EXPONENTS = (768, 92, 0, -96, -768)
LEAST = 2.0**-60  # a plain sum of this size has lost nothing that would show in it


def squares(values: Any, add: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the sums of |2^e values|^2 for each of EXPONENTS; `add` sums elementwise numbers."""
    plain = add(abs2(values))
    usual = jnp.all(jnp.logical_and(plain >= LEAST, plain < jnp.inf))
    sums: tuple[Any, ...] = jax.lax.cond(
        usual, lambda: _from_plain(plain), lambda: _all_sums(values, add, plain)
    )
    return sums


def _from_plain(plain: Any) -> tuple[Any, ...]:
    """Return the sums where the plain one is good: more is not asked of those of larger scales."""
    return tuple(jnp.full_like(plain, jnp.inf) if e > 0 else plain * 4.0**e for e in EXPONENTS)


def _all_sums(values: Any, add: Callable[[Any], Any], plain: Any) -> tuple[Any, ...]:
    size, info = jnp.abs(values), np.finfo(plain.dtype)
    others = [e for e in EXPONENTS if 0 < 2 * abs(e) <= 3 * info.maxexp // 2]
    limits = [info.maxexp // 2 - 1 - e for e in others]
    most = [2.0**k if k < info.maxexp else float(info.max) for k in limits]

    def total(scale: tuple[Any, Any]) -> Any:
        # What overflows is left out before it does: an infinite intermediate has no derivative.
        power, limit = scale
        fits = size <= limit
        return add(jnp.where(fits, abs2(jnp.where(fits, values, 0) * power), _overflown(size)))

    scales = jnp.array([2.0**e for e in others], plain.dtype), jnp.array(most, plain.dtype)
    sums = jax.lax.map(total, scales)  # one kernel for all of them, as this is seldom needed
    inner = {0: plain} | dict(zip(others, sums, strict=True))
    up, down = inner[max(inner)], inner[min(inner)]
    # Beyond its own range a dtype has only what is too large, or what is nothing beside that.
    above = jnp.where(up == 0, 0, _overflown(up))
    below = jnp.where(jnp.isfinite(down), 0, down)
    return tuple(inner.get(e, above if e > 0 else below) for e in EXPONENTS)


def _overflown(size: Any) -> Any:
    return jnp.where(jnp.isnan(size), size, jnp.inf)


def root_of(sums: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return (scale, root) such that the 2-norm is `scale * root`, from the sums of squares."""
    info, total = np.finfo(sums[0].dtype), sums[-1]
    scale = jnp.full_like(total, _scale(EXPONENTS[-1], info))
    for e, each in reversed(list(zip(EXPONENTS, sums, strict=True))[:-1]):
        finite = jnp.isfinite(each)  # of these, the largest scale has lost least
        scale, total = jnp.where(finite, _scale(e, info), scale), jnp.where(finite, each, total)
    return scale, safe_sqrt(total)


def _scale(e: int, info: Any) -> float:
    """Return 2^-e, infinite above the range of a dtype and not 0 below it, to be divided by."""
    return np.inf if -e >= info.maxexp else max(2.0**-e, float(info.tiny))
