"""Finite differences: slow, independent of every library, for checking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import adapter_of
from ..arrays.numbers import is_complex, is_trainable_dtype, precision
from ..arrays.ops import is_traced_type
from ..errors import ArgumentError
from ..state import State
from ..tree import flatten, outline, program, rebuild
from .backend import Arrays, Backend, Differentiable, viewed


@dataclass(frozen=True)
class AutoFiniteDiff(Backend):
    """Differentiate by central differences in float64, two calls for each number in the model.

    All floating arrays of the model and of the data are widened to 64 bits first (where their
    library has them), so that the answer is good to about ten digits. Gradients are NumPy arrays.

    Args:
        step: the relative step; None is the cube root of the machine's epsilon, 6e-6.

    Raises:
        ArgumentError: a step that is not a positive number.

    Examples:
        >>> w = np.array([1.0, 2.0], np.float32)
        >>> ad.gradient(lambda w: (w**3).sum(), w, ad=ad.AutoFiniteDiff()).round(6)
        array([ 3., 12.])
    """

    step: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None and not (isinstance(self.step, int | float) and self.step > 0):
            raise ArgumentError(f"step must be a positive number or None, got {self.step!r}")

    def value_and_gradient(
        self, f: Any, model: Any, *data: Any, has_aux: bool = False, state: State | None = None
    ) -> tuple[Any, Any]:
        """Widen the model and the data, and see how much `f` changes."""
        with precision(True):
            wide, *given = map(_widened, (model, *data))
            return super().value_and_gradient(f, wide, *given, has_aux=has_aux, state=state)

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Move each number up and down."""
        if any(is_traced_type(type(x)) for x in arrays):
            raise ArgumentError(
                "AutoFiniteDiff needs the numbers themselves: it cannot be used inside jax.jit"
            )

        def moved(i: int) -> Callable[[Any], float]:
            adapter = adapter_of(type(arrays[i]))
            assert adapter is not None
            return lambda x: _float(f([*arrays[:i], adapter.array(x), *arrays[i + 1 :]])[0])

        arrays = list(arrays)
        grads = [self._slopes(moved(i), np.array(viewed(x))) for i, x in enumerate(arrays)]
        value, aux = f(arrays)
        return (np.asarray(viewed(value)), aux), grads

    def _slopes(self, f: Callable[[Any], float], x: Any) -> Any:
        """Return the slope of `f` in each number of `x`, of complex ones along both axes."""
        h = self.step or float(np.finfo(x.dtype).eps) ** (1 / 3)
        slopes = np.zeros(x.shape, np.complex128 if is_complex(x.dtype) else np.float64)
        for at in np.ndindex(x.shape):
            for axis in (1.0, 1j) if is_complex(x.dtype) else (1.0,):
                high, low = x.copy(), x.copy()
                high[at] += axis * h * max(1.0, abs(x[at]))
                low[at] -= axis * h * max(1.0, abs(x[at]))
                slopes[at] += axis * (f(high) - f(low)) / abs(high[at] - low[at])
        return slopes


def _float(value: Any) -> float:
    return float(np.asarray(viewed(value)))


def _widened(tree: Any) -> Any:
    """Return a tree with its floating arrays in 64 bits."""
    leaves, _ = flatten(tree)
    new = list(map(_wide, leaves))
    held = [i for i, x in enumerate(new) if x is not leaves[i]]
    return rebuild(tree, program(outline(tree).nodes, held), new, False)


def _wide(x: Any) -> Any:
    adapter = adapter_of(type(x))
    if adapter is None or not is_trainable_dtype(adapter.dtype(x)) or is_traced_type(type(x)):
        return x
    kind = np.complex128 if is_complex(adapter.dtype(x)) else np.float64
    return adapter.array(np.asarray(adapter.view(x)).astype(kind))
