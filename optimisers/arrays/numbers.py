"""The dtype policy: in which precision a parameter is computed, and its scalars kept.

16-bit (and narrower) parameters are computed in float32 and have float32 state; 64-bit ones are
computed in 64 bits whether or not JAX's x64 mode is on. Hyper-parameters and step scalars are
real: float32 beside parameters of at most 32 bits a part, float64 beside wider ones.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@lru_cache(maxsize=256)
def is_trainable_dtype(dtype: Any) -> bool:
    """Tell whether arrays of `dtype` are parameters: floating or complex, bfloat16 included."""
    try:
        # jnp, because NumPy does not count bfloat16 among the floating dtypes.
        return bool(jnp.issubdtype(dtype, jnp.inexact))
    except TypeError:
        return False


@lru_cache(maxsize=256)
def compute_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype in which a parameter of `dtype` is computed."""
    own: np.dtype[Any] = np.dtype(dtype)
    if jnp.issubdtype(own, jnp.floating) and own.itemsize < 4:
        return np.dtype(np.float32)
    return own.newbyteorder("=")


@lru_cache(maxsize=256)
def scalar_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the real dtype of hyper-parameters and step scalars beside `dtype`."""
    return np.dtype(np.float64 if is_wide(dtype) else np.float32)


@lru_cache(maxsize=256)
def is_wide(dtype: Any) -> bool:
    """Tell whether `dtype` needs 64-bit arithmetic."""
    return str(np.dtype(dtype).newbyteorder("=")) in ("float64", "complex128", "int64", "uint64")


@lru_cache(maxsize=256)
def is_complex(dtype: Any) -> bool:
    """Tell whether `dtype` is complex."""
    return bool(jnp.issubdtype(dtype, jnp.complexfloating))


@lru_cache(maxsize=512)
def fits(dtype: Any, parameter: Any) -> bool:
    """Tell whether a gradient of a dtype is one for a parameter of another."""
    try:
        number = jnp.issubdtype(dtype, jnp.number)
    except TypeError:
        return False
    return bool(number) and (is_complex(parameter) or not is_complex(dtype))


def x64_enabled() -> bool:
    """Tell whether JAX is in 64-bit mode at this moment."""
    return bool(jax.config.read("jax_enable_x64"))


def precision(wide: bool) -> AbstractContextManager[Any]:
    """Return a context in which arithmetic is as wide as asked for.

    It changes nothing where nothing need change, as each such context costs lookups in JAX.
    """
    if wide and not x64_enabled():
        wider: AbstractContextManager[Any] = jax.enable_x64(True)
        return wider
    return nullcontext()


def standard_promotion(*dtypes: Any) -> AbstractContextManager[Any]:
    """Let real scalars meet complex arrays, as strict promotion forbids even `eta * g`."""
    if any(is_complex(dtype) for dtype in dtypes):
        standard: AbstractContextManager[Any] = jax.numpy_dtype_promotion("standard")
        return standard
    return nullcontext()


def describe(x: Any) -> str:
    """Write an array as `float32[3, 4]`, anything else as its type's name."""
    # The class is asked first: other objects may answer to these names with anything, or raise.
    if not (hasattr(type(x), "shape") and hasattr(type(x), "dtype")):
        return type(x).__name__
    name = str(x.dtype).removeprefix("<dtype: '").removesuffix("'>").rpartition(".")[2]
    return f"{name}{list(x.shape)}"
