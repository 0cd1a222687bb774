"""JAX arrays: passed to kernels as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import StateError
from .numbers import is_complex


class JaxAdapter:
    """JAX's answers."""

    name = "jax"
    host = False
    bulk = None

    def is_array_type(self, cls: type) -> bool:
        """Arrays, tracers, and what JAX hands out in the place of a gradient."""
        return issubclass(cls, jax.Array | Tracer) or cls.__name__ in (
            "SymbolicZero",
            "BCOO",
            "BCSR",
        )

    def is_parameter(self, x: Any) -> bool:
        """Every floating array is trained; a sparse one is no parameter."""
        return isinstance(x, jax.Array)

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype."""
        dtype: np.dtype[Any] = x.dtype
        return dtype

    def identity(self, x: Any) -> Any:
        """Only one object is one array."""
        return id(x)

    def check(self, x: Any, code: str) -> None:
        """Raise StateError for an array whose memory was given away."""
        if not isinstance(x, Tracer) and x.is_deleted():
            raise StateError(
                f"{code} was deleted: its memory was given to an update; use the model that the "
                "last call returned"
            )

    def view(self, x: Any) -> Any:
        """Return the array itself."""
        return x

    def gradient(self, g: Any) -> Any:
        """Sum a sparse gradient to a dense one; a symbolic zero means that there is none."""
        if isinstance(g, jax.Array):
            return None if g.dtype == jax.dtypes.float0 else g
        return None if type(g).__name__ == "SymbolicZero" else g.todense()

    def held(self, x: Any) -> Any:
        """JAX's arrays carry no gradient."""
        return None

    def may_write(self, x: Any) -> bool:
        """JAX's arrays are never written; `update_` gives their memory to the result instead."""
        return False

    def write(self, x: Any, value: np.ndarray[Any, Any]) -> Any:
        """Return a new array, as there is nothing to write into."""
        return self.like(x, value)

    def like(self, x: Any, value: Any) -> Any:
        """Return a JAX array where `x` is."""
        if isinstance(x, Tracer):
            return jnp.asarray(value, dtype=x.dtype)
        return jax.device_put(jnp.asarray(value, dtype=x.dtype), x.sharding)

    def array(self, value: np.ndarray[Any, Any]) -> Any:
        """Return a JAX array; 64-bit numbers become 32-bit ones outside JAX's x64 mode."""
        return jnp.array(value)

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Concatenate, as wide as JAX's x64 mode lets it."""
        kind = jax.dtypes.canonicalize_dtype(dtype)
        return jnp.concatenate([jnp.asarray(part).reshape(-1).astype(kind) for part in parts])

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Slice, reshape and cast."""
        part = flat[where].reshape(shape)
        real = jnp.iscomplexobj(part) and not is_complex(dtype)
        return (part.real if real else part).astype(jax.dtypes.canonicalize_dtype(dtype))


ADAPTER = JaxAdapter()
