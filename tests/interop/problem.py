"""What every library is given: the same numbers, the same loss, the same rule."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optimisers import Adam, setup, update

STEPS, RULE = 20, Adam(0.05)
SHAPES = {"w": (3, 3), "b": (3,), "narrow": (3,), "unused": (2,)}
Numbers = dict[str, Any]


def numbers() -> Numbers:
    """Return the parameters: `w` stands at two places, `narrow` has 16 bits."""
    generator = np.random.default_rng(5)
    drawn = {name: generator.normal(0, 0.7, shape) for name, shape in SHAPES.items()}
    return {n: x.astype(np.float16 if n == "narrow" else np.float32) for n, x in drawn.items()}


def data() -> tuple[Any, Any]:
    """Return inputs and targets."""
    generator = np.random.default_rng(6)
    x, y = generator.normal(0, 1, (2, 8, 3)).astype(np.float32)
    return x, y


def loss(
    tanh: Callable[..., Any], mean: Callable[..., Any], wide: Callable[..., Any],
    first: Any, b: Any, second: Any, narrow: Any, x: Any, y: Any,
) -> Any:  # fmt: skip
    """Return the loss in a library's own functions; `first` and `second` are both `w`.

    What the 16-bit parameter takes part in is a term of its own, so that its rounding, which may
    differ between libraries, stays with it.
    """
    error = mean((tanh(x @ first + b) @ second - y) ** 2)
    return error + mean((x * wide(narrow) - y) ** 2)


def _wide(x: Any) -> Any:
    return x.astype(jnp.float32)


def _loss(p: Any, x: Any, y: Any) -> Any:
    return loss(jnp.tanh, jnp.mean, _wide, p["w"], p["b"], p["again"], p["narrow"], x, y)


@functools.cache
def first_gradients() -> Numbers:
    """Return plain jax.grad of the numbers: "w" and "again" are the parts of the tied parameter."""
    p = dict(numbers())
    return {k: np.asarray(g) for k, g in jax.grad(_loss)({**p, "again": p["w"]}, *data()).items()}


@functools.cache
def trained() -> Numbers:
    """Return the parameters after training on plain jax.grad of a dict."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        p = {name: jnp.asarray(x) for name, x in numbers().items()}
        model = {**p, "again": p["w"]}
        state, grad = setup(RULE, model), jax.jit(jax.grad(_loss))
        for _ in range(STEPS):
            state, model = update(state, model, grad(model, *data()))
        return {name: np.asarray(model[name]) for name in SHAPES}
