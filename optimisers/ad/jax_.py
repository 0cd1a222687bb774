"""JAX: arrays of JAX and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from ..arrays import adapter_of
from ..arrays.numbers import is_complex, is_wide, precision, x64_enabled
from ..arrays.ops import is_traced_type
from .backend import Arrays, Backend, Differentiable


@dataclass(frozen=True)
class AutoJAX(Backend):
    """Differentiate with `jax.value_and_grad`: models of JAX arrays, and of NumPy arrays.

    Gradients of NumPy arrays are NumPy arrays. 64-bit parameters are differentiated in 64 bits,
    also outside JAX's x64 mode.

    Examples:
        >>> ad.gradient(lambda m: (m["w"] ** 2).sum(), {"w": np.array([1.0, 2.0])}, ad=ad.AutoJAX())
        {'w': array([2., 4.])}
    """

    library: ClassVar[str | None] = "jax"

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Arrays of JAX, tracers, and arrays of NumPy."""
        adapter = adapter_of(kind)
        return adapter is not None and adapter.name in ("jax", "numpy")

    def transform(self, f: Differentiable) -> Callable[[Any], Any]:
        """Return the function that gives `((value, aux), gradients)`."""
        both: Callable[[Any], Any] = jax.value_and_grad(f, has_aux=True)
        return both

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask JAX; it gives the conjugate of the descent direction."""
        xs = [_native(x) for x in arrays]
        wide = any(is_wide(x.dtype) for x in xs)
        with precision(wide):
            out, grads = self.transform(f)(xs)
            grads = [g.conj() if is_complex(g.dtype) else g for g in grads]
        if wide and not x64_enabled():
            out = jax.tree.map(_kept_wide, out)
        return out, [_like(x, g) for x, g in zip(arrays, grads, strict=True)]


def _native(x: Any) -> Any:
    adapter = adapter_of(type(x))
    assert adapter is not None
    return adapter.view(x)


def _like(x: Any, g: Any) -> Any:
    return np.asarray(g) if isinstance(x, np.ndarray) and not is_traced_type(type(g)) else g


def _kept_wide(x: Any) -> Any:
    """Take 64-bit results out of JAX, which would narrow them in the next thing done with them."""
    if isinstance(x, jax.Array) and not is_traced_type(type(x)) and is_wide(x.dtype):
        return np.asarray(x)
    return x
