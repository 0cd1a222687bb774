"""Gradients from any library that differentiates, asked for in one way."""

from .asking import gradient, value_and_gradient
from .backend import Backend
from .jax_ import AutoJAX

__all__ = ["AutoJAX", "Backend", "gradient", "value_and_gradient"]
