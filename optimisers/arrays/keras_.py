"""Keras: a Variable is the array that it holds, of JAX, TensorFlow or torch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from .adapter import Adapter, adapter_of

keras: Any = import_module("keras")  # by name: type checkers do without it


class KerasAdapter:
    """Keras' answers, mostly those of its back end."""

    name = "keras"
    host = True
    bulk = None

    def is_array_type(self, cls: type) -> bool:
        """Variables; what they hold has adapters of its own."""
        return issubclass(cls, keras.Variable)

    def is_parameter(self, x: Any) -> bool:
        """A variable is trained unless it is not trainable."""
        return bool(x.trainable)

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype in NumPy's words."""
        return _of(x.value).dtype(x.value)

    def identity(self, x: Any) -> Any:
        """Only one object is one array."""
        return id(x)

    def check(self, x: Any, code: str) -> None:
        """Ask the back end."""
        _of(x.value).check(x.value, code)

    def view(self, x: Any) -> Any:
        """Return the values on the host."""
        return np.asarray(_of(x.value).view(x.value))

    def gradient(self, g: Any) -> Any:
        """Return the values."""
        return self.view(g)

    def held(self, x: Any) -> Any:
        """Return what the back end's array holds: torch's `.grad`."""
        return _of(x.value).held(x.value)

    def may_write(self, x: Any) -> bool:
        """Every variable can be assigned to."""
        return True

    def write(self, x: Any, value: np.ndarray[Any, Any]) -> Any:
        """Assign; the back end gets a copy."""
        x.assign(_of(x.value).array(value))
        return x

    def like(self, x: Any, value: Any) -> Any:
        """Return a new variable."""
        value = np.array(value, dtype=self.dtype(x))
        return keras.Variable(value, dtype=x.dtype, trainable=x.trainable, name=x.name)

    def array(self, value: np.ndarray[Any, Any]) -> Any:
        """Return an array of the back end, in which vectors and gradients are."""
        return keras.ops.convert_to_tensor(np.array(value))

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Leave it to the back end."""
        values = [part.value if isinstance(part, keras.Variable) else part for part in parts]
        return _of(values[0]).joined(values, dtype)

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Leave it to the back end: a Variable cannot be differentiated."""
        return _of(flat).piece(flat, where, shape, dtype)


def _of(value: Any) -> Adapter:
    adapter = adapter_of(type(value))
    assert adapter is not None
    return adapter


ADAPTER = KerasAdapter()
