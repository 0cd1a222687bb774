"""A line through three points, by descent: small enough to be computed by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], np.float32)
Y = np.array([1.0, 2.0, 0.0], np.float32)


def loss(model: Any, x: Any, y: Any) -> Any:
    return ((x @ model["w"] + model["b"] - y) ** 2).mean()


def fresh(array: Any = jnp.array) -> Any:
    return {"w": array(np.array([0.5, -0.5], np.float32)), "b": array(np.float32(0.0))}


def by_hand(steps: int, eta: float = 0.1) -> tuple[list[float], np.ndarray]:
    """Return the losses before each step of descent, and the weights after the last, in NumPy."""
    w, b, x = np.array([0.5, -0.5]), 0.0, X.astype(float)
    losses = []
    for _ in range(steps):
        error = x @ w + b - Y
        losses.append(float((error**2).mean()))
        w, b = w - eta * 2 * x.T @ error / 3, b - eta * 2 * error.mean()
    return losses, w


def counted() -> tuple[Any, list[int]]:
    traces: list[int] = []

    def counting(model: Any, x: Any, y: Any) -> Any:
        traces.append(1)
        return loss(model, x, y)

    return counting, traces
