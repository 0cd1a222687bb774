"""The few functions that formulas of several rules share, with derivatives that are finite at 0."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def abs2(x: Any) -> Any:
    """Return |x|^2, real also for complex x; its derivative at 0 is 0."""
    if jnp.iscomplexobj(x):
        return x.real * x.real + x.imag * x.imag
    return x * x


def safe_sqrt(x: Any) -> Any:
    """Return the root of x, 0 for x <= 0 (a rounding error below zero), with derivative 0 there.

    The derivative of a plain root is infinite at 0, and 0 * inf = NaN would reach the gradient of a
    loss through any step in which a gradient was zero.
    """
    flat = x <= 0  # rather than asking for x > 0: NaN stays NaN
    return jnp.where(flat, 0, jnp.sqrt(jnp.where(flat, 1, x)))


def real_zeros_like(x: Any) -> Any:
    """Return zeros shaped like x, real also for complex x."""
    return jnp.zeros_like(x.real if jnp.iscomplexobj(x) else x)


def ratio(a: Any, b: Any) -> Any:
    """Return a / b, 0 where b is 0: with epsilon = 0 a zero gradient would else step by 0 / 0."""
    empty = b == 0
    return jnp.where(empty, 0, a / jnp.where(empty, 1, b))
