"""A model with a leaf of every kind of storage, and comparing trees bit for bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def model_of_all_kinds() -> dict[str, Any]:
    """Return a model of small and large, NumPy and JAX, 16-, 32- and 64-bit, tied parameters."""
    rng = np.random.default_rng(0)
    shared = jnp.asarray(rng.normal(size=4), jnp.float32)
    return {
        "jax": jnp.asarray(rng.normal(size=(3, 4)), jnp.float32),
        "big": jnp.asarray(rng.normal(size=(130, 140)), jnp.float32),
        "half": jnp.asarray(rng.normal(size=5), jnp.bfloat16),
        "numpy": rng.normal(size=(2, 3)),
        "list": [rng.normal(size=3).astype(np.float32), shared],
        "tied": shared,
        "scalar": jnp.float32(0.5),
        "name": "not a parameter",
        "int": np.arange(3),
    }


def grads_like(model: Any, seed: int = 1) -> Any:
    """Return gradients for a model, nested alike, None where there is none."""
    rng = np.random.default_rng(seed)

    def gradient(x: Any) -> Any:
        if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.inexact):
            return None
        g = rng.normal(size=x.shape)
        if jnp.issubdtype(x.dtype, jnp.complexfloating):
            g = g + 1j * rng.normal(size=x.shape)
        return (
            np.asarray(g.astype(x.dtype)) if isinstance(x, np.ndarray) else jnp.asarray(g, x.dtype)
        )

    return jax.tree.map(gradient, model, is_leaf=lambda x: isinstance(x, str))


def assert_same(a: Any, b: Any) -> None:
    """Insist on two trees that are equal bit for bit, dtypes included."""
    leaves, others = jax.tree.leaves(a), jax.tree.leaves(b)
    assert len(leaves) == len(others)
    for x, y in zip(leaves, others, strict=True):
        if hasattr(x, "dtype"):
            assert (x.dtype, np.shape(x)) == (y.dtype, np.shape(y))
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
        else:
            assert x == y


def small_model() -> dict[str, Any]:
    """Return a JAX and a NumPy parameter."""
    rng = np.random.default_rng(0)
    return {"a": jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), "b": rng.normal(size=4)}
