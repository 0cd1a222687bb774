"""NumPy arrays: written in place, computed on JAX's CPU device."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, setitem
from typing import Any

import jax
import numpy as np

from .adapter import Bulk, Shapes
from .numbers import is_complex

shape_of, dtype_of = attrgetter("shape"), attrgetter("dtype")
is_simple = attrgetter("flags.carray")  # contiguous, aligned and writeable


class NumPyBulk:
    """Plain NumPy arrays, copied one by one: by a loop that C runs."""

    def facts(self, xs: Sequence[Any]) -> Any:
        """Return shapes, dtypes and flags; the memory of an array stays where it is."""
        return tuple(map(shape_of, xs)), set(map(dtype_of, xs)), all(map(is_simple, xs))

    def fits(self, xs: Sequence[Any], dtype: str, shapes: Shapes, write: bool = False) -> bool:
        """Subclasses do not, as they may carry more than elements."""
        if set(map(type, xs)) != {np.ndarray} or set(map(dtype_of, xs)) != {np.dtype(dtype)}:
            return False
        return tuple(map(shape_of, xs)) == shapes and (not write or all(map(is_simple, xs)))

    def view(self, x: Any) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return np.asarray(x)

    def shared(self, a: np.ndarray[Any, Any]) -> Any:
        """Return the array itself."""
        return a

    def copy(self, to: Sequence[Any], values: Sequence[Any]) -> None:
        """Copy values into arrays."""
        deque(map(setitem, to, repeat(...), values), maxlen=0)  # only to run it


class NumPyAdapter:
    """NumPy's answers."""

    name = "numpy"
    host = True
    bulk: Bulk | None = NumPyBulk()

    def is_array_type(self, cls: type) -> bool:
        """NumPy scalars are numbers, not arrays: they cannot be written and have no identity."""
        return issubclass(cls, np.ndarray)

    def is_parameter(self, x: Any) -> bool:
        """Every floating array is trained."""
        return True

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype in native byte order."""
        dtype: np.dtype[Any] = x.dtype.newbyteorder("=")
        return dtype

    def identity(self, x: Any) -> Any:
        """Two objects that are the same elements of the same memory are one array."""
        if x.size == 0:
            return id(x)
        return ("numpy", x.__array_interface__["data"][0], x.shape, x.strides, x.dtype.str)

    def check(self, x: Any, code: str) -> None:
        """NumPy arrays can always be computed."""

    def view(self, x: Any) -> Any:
        """Return the array itself, in native byte order and as a plain ndarray."""
        return np.asarray(x, dtype=x.dtype.newbyteorder("="))

    def gradient(self, g: Any) -> Any:
        """Return the array; JAX's float0 means that there is no gradient."""
        if g.dtype == jax.dtypes.float0:
            return None
        # JAX has nothing wider than 64 bits a part.
        narrower = {"g": np.float64, "G": np.complex128}.get(g.dtype.char)
        return self.view(g) if narrower is None else g.astype(narrower)

    def held(self, x: Any) -> Any:
        """NumPy's arrays carry no gradient."""
        return None

    def may_write(self, x: Any) -> bool:
        """Read-only arrays, and those whose elements share memory, cannot be written."""
        if x.flags.c_contiguous or not x.flags.writeable:
            return bool(x.flags.writeable)
        # Fewer bytes than elements need: a broadcast array, or windows sliding over one.
        low, high = np.lib.array_utils.byte_bounds(x)
        return bool(high - low >= x.nbytes)

    def write(self, x: Any, value: np.ndarray[Any, Any]) -> Any:
        """Copy a value into the array."""
        np.copyto(x, value)
        return x

    def like(self, x: Any, value: Any) -> Any:
        """Return a new array of the same class and byte order."""
        if type(x) is np.ndarray:
            return np.array(value, dtype=x.dtype)
        new = x.copy()  # a subclass may carry more than elements, as a mask
        return self.write(new, value)

    def array(self, value: np.ndarray[Any, Any]) -> Any:
        """Return a copy."""
        return np.array(value)

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Concatenate copies."""
        return np.concatenate([np.asarray(part, np.dtype(dtype)).reshape(-1) for part in parts])

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a copy, so that writing it does not write the vector."""
        part = flat[where].reshape(shape)
        real = np.iscomplexobj(part) and not is_complex(dtype)
        return np.array(part.real if real else part, np.dtype(dtype))


ADAPTER = NumPyAdapter()
