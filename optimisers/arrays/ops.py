"""The few operations on arrays of any library that need no rule: totals, zeros, and identity."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .numbers import compute_dtype, is_wide, precision


def own_array(a: Any, home: Any = None) -> jax.Array:
    """Return a NumPy array or number as an array of JAX's own; `jnp.asarray` compiles a program."""
    array: jax.Array = jax.device_put(a, home, may_alias=False)
    return array


def total(parts: Sequence[Any], dtype: str) -> Any:
    """Add gradients of one parameter in its compute dtype; JAX or NumPy arrays."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        wide = [
            np.asarray(part, dtype=np.result_type(part, compute_dtype(dtype))) for part in parts
        ]
        # An overflow is an infinite gradient, as in JAX, and not a warning.
        with np.errstate(all="ignore"):
            return functools.reduce(np.add, wide)
    # Host memory is copied: the sum may be taken later than its owner believes.
    own = tuple(copied(part) if isinstance(part, np.ndarray) else part for part in parts)
    with precision(is_wide(dtype)):
        try:
            return concretely(_add, own, str(compute_dtype(dtype)))
        except ValueError as error:
            if "incompatible devices" not in str(error):
                raise
            return _add(tuple(map(copied, own)), str(compute_dtype(dtype)))


@functools.partial(jax.jit, static_argnums=1)
def _add(parts: tuple[Any, ...], dtype: str) -> Any:
    return functools.reduce(lambda a, b: a + b, (part.astype(dtype) for part in parts))


def concretely(program: Callable[..., Any], *args: Any) -> Any:
    """Return what a program gives for arguments of which none is traced.

    Within somebody's `jax.jit` JAX would trace it too, and the results with it.
    """
    out = program(*args)
    last = out
    while isinstance(last, tuple) and last:
        last = last[-1]
    if isinstance(last, Tracer) and not any(isinstance(a, Tracer) for a in jax.tree.leaves(args)):
        with jax.ensure_compile_time_eval():
            return program(*args)
    return out


def is_traced_type(cls: type) -> bool:
    """Tell whether objects of a class are tracers of a JAX transformation."""
    return issubclass(cls, Tracer)


def copied(x: Any) -> Any:
    """Return a NumPy array that shares no memory with `x`."""
    return np.array(x)


@functools.cache
def cpu() -> Any:
    """Return JAX's first CPU device, where host memory is computed."""
    return jax.devices("cpu")[0]


def on_cpu() -> Any:
    """Return a context in which NumPy arguments are computed on the CPU."""
    return jax.default_device(cpu())
