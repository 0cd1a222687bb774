"""What the package asks of an array library; each library answers in one file beside this one."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .caching import cached

Shapes = tuple[tuple[int, ...], ...]


class Bulk(Protocol):
    """How a library copies many arrays at once: to and from parts of one NumPy array."""

    def facts(self, xs: Sequence[Any]) -> Any:
        """Return what tells that arrays are where and what they were: memory, shapes, dtypes."""
        ...

    def fits(self, xs: Sequence[Any], dtype: str, shapes: Shapes, write: bool = False) -> bool:
        """Tell whether all are plain arrays of these in host memory, to be written if asked."""
        ...

    def view(self, x: Any) -> np.ndarray[Any, Any]:
        """Return the memory of one of them as a NumPy array."""
        ...

    def shared(self, a: np.ndarray[Any, Any]) -> Any:
        """Return a NumPy array's own memory as an array of this library."""
        ...

    def copy(self, to: Sequence[Any], values: Sequence[Any]) -> None:
        """Copy values into arrays."""
        ...


class Adapter(Protocol):
    """One array library. Adding one is a file with an object like this, and a line in LIBRARIES."""

    name: str
    """Short name of the library."""

    host: bool
    """Whether its arrays are computed from NumPy views of their memory (False: JAX's own)."""

    bulk: Bulk | None
    """How many of its arrays are copied at once; None where it has no way that pays."""

    def is_array_type(self, cls: type) -> bool:
        """Tell whether objects of a class are leaves of this library, sparse gradients included."""
        ...

    def is_parameter(self, x: Any) -> bool:
        """Tell whether a floating array may be trained (False: torch's requires_grad is off)."""
        ...

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype, in NumPy's words."""
        ...

    def identity(self, x: Any) -> Any:
        """Return something hashable, equal for two objects that are one array."""
        ...

    def check(self, x: Any, code: str) -> None:
        """Raise DeviceError for an array that JAX cannot use, StateError for a deleted one."""
        ...

    def view(self, x: Any) -> Any:
        """Return the array as JAX's kernels take it: itself, or its memory as a NumPy array."""
        ...

    def gradient(self, g: Any) -> Any:
        """Return a gradient as a dense JAX or NumPy array, or None where it means none."""
        ...

    def held(self, x: Any) -> Any:
        """Return the gradient that the array itself carries (torch's `.grad`), or None."""
        ...

    def may_write(self, x: Any) -> bool:
        """Tell whether the memory of `x` can be written in place."""
        ...

    def write(self, x: Any, value: np.ndarray[Any, Any]) -> Any:
        """Write a value into the array in place; return it."""
        ...

    def like(self, x: Any, value: Any) -> Any:
        """Return a new array of the kind of `x` that owns a copy of `value`."""
        ...

    def array(self, value: np.ndarray[Any, Any]) -> Any:
        """Return a plain new array of this library with the value and dtype of a NumPy array."""
        ...

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Return a new vector of the elements of arrays; derivatives pass."""
        ...

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a part of a vector as an array of a dtype; derivatives pass."""
        ...


LIBRARIES = {
    "numpy": "numpy_", "jax": "jax_", "jaxlib": "jax_", "torch": "torch_", "scipy": "scipy_",
    "autograd": "autograd_", "keras": "keras_", "tensorflow": "tensorflow_", "mlx": "mlx_",
    "tinygrad": "tinygrad_",
}  # fmt: skip


@cached
def adapter_of(cls: type) -> Adapter | None:
    """Return the adapter for objects of a class, found from the packages that it descends from."""
    for base in cls.__mro__:
        module = LIBRARIES.get(base.__module__.partition(".")[0])
        if module is None:
            continue
        adapter: Adapter = importlib.import_module(f".{module}", __package__).ADAPTER
        if adapter.is_array_type(cls):
            return adapter
    return None


@cached
def is_array_type(cls: type) -> bool:
    """Tell whether objects of a class are arrays of a library that has an adapter."""
    return adapter_of(cls) is not None
