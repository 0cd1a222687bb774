"""Gradients from any library that differentiates, asked for in one way."""

from .asking import gradient, value_and_gradient
from .autograd_ import AutoAutograd
from .backend import Backend
from .equinox_ import AutoEquinox
from .finite_diff import AutoFiniteDiff
from .jax_ import AutoJAX
from .mlx_ import AutoMLX
from .nnx_ import AutoNNX
from .tensorflow_ import AutoTensorFlow
from .tinygrad_ import AutoTinygrad
from .torch_ import AutoTorch

__all__ = [
    "AutoAutograd",
    "AutoEquinox",
    "AutoFiniteDiff",
    "AutoJAX",
    "AutoMLX",
    "AutoNNX",
    "AutoTensorFlow",
    "AutoTinygrad",
    "AutoTorch",
    "Backend",
    "gradient",
    "value_and_gradient",
]
