"""JAX: arrays of JAX and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import adapter_of
from ..arrays.numbers import is_complex, is_wide, precision
from ..arrays.ops import copied
from .backend import Arrays, Backend, Differentiable, nothing
from .compiling import Compiled, explained, home, native


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

    def descent(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask JAX; it gives the conjugate of the descent direction."""
        out, grads = self.transform(f)(arrays)
        return out, [g.conj() if is_complex(g.dtype) else g for g in grads]

    def kept(self, leaves: Sequence[Any]) -> Callable[[], None]:
        """Keep nothing: what is traced is written nowhere."""
        return nothing

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask JAX, in 64 bits where a parameter has them."""
        views = list(map(native, arrays))
        wide = any(is_wide(x.dtype) for x in views)
        with precision(wide), explained(arrays):
            # JAX hands out NumPy's as a class of its own, of the caller's memory.
            xs = [jnp.array(x) if isinstance(x, np.ndarray) else x for x in views]
            out, grads = self.descent(f, xs)
        return home(out, grads, arrays, wide, copied)

    def compiled(self, f: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
        """Return a function that compiles what it is given once."""
        return Compiled(self.descent, f, self.carries)
