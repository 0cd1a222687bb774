"""MLX: arrays are written in place by slices; a Module is a container of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np

from .containers import Kind, Level, NameTuple, keyed
from .numbers import is_complex

mx: Any = import_module("mlx.core")  # by name: type checkers do without it
nn: Any = import_module("mlx.nn")


class MlxAdapter:
    """MLX's answers."""

    name = "mlx"
    host = True
    bulk = None

    def is_array_type(self, cls: type) -> bool:
        """MLX has one kind of array."""
        return issubclass(cls, mx.array)

    def is_parameter(self, x: Any) -> bool:
        """Every floating array is trained; that one is frozen is known to its module."""
        return True

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype in NumPy's words."""
        name = str(x.dtype).rpartition(".")[2]
        return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)

    def identity(self, x: Any) -> Any:
        """Only one object is one array."""
        return id(x)

    def check(self, x: Any, code: str) -> None:
        """The memory is shared by all of MLX's devices."""

    def view(self, x: Any) -> Any:
        """Return a copy: MLX may give the memory to another array once nobody else has it."""
        if x.dtype == mx.bfloat16:  # which NumPy does not take from a buffer
            return np.array(x.view(mx.uint16)).view(ml_dtypes.bfloat16)
        return np.array(x)

    def gradient(self, g: Any) -> Any:
        """Return the array."""
        return self.view(g)

    def held(self, x: Any) -> Any:
        """MLX's arrays know no gradient: a function returns it."""
        return None

    def may_write(self, x: Any) -> bool:
        """Every array can be written."""
        return True

    def write(self, x: Any, value: np.ndarray[Any, Any]) -> Any:
        """Give the array new elements."""
        x[...] = self.array(value)
        return x

    def like(self, x: Any, value: Any) -> Any:
        """Return a new array."""
        return self.array(np.asarray(value, dtype=self.dtype(x)))

    def array(self, value: np.ndarray[Any, Any]) -> Any:
        """Return an array."""
        return mx.array(value, getattr(mx, str(value.dtype)))

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Concatenate; derivatives pass."""
        return mx.concatenate([part.reshape(-1).astype(getattr(mx, dtype)) for part in parts])

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Slice, reshape and cast; derivatives pass."""
        part = flat[where].reshape(shape)
        real = part.dtype == mx.complex64 and not is_complex(dtype)
        return (part.real if real else part).astype(getattr(mx, dtype))


ADAPTER = MlxAdapter()


def _open(x: Any) -> Level:
    held = {name: child for name, child in x.items() if _may_train(name, child)}
    return Level(list(held.values()), tuple(held), dotted=True, optional=True, left=x._no_grad)


def _may_train(name: str, child: Any) -> bool:
    # As MLX has it, which hides names that begin with "_", and does not look into tuples.
    return not name.startswith("_") and isinstance(child, dict | list | mx.array)


def _build(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    cls: Any = type(x)
    new = cls.__new__(cls)
    dict.update(new, x)
    vars(new).update(vars(x), _no_grad=set(x._no_grad))
    return _write(new, names, children)


def _write(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    dict.update(x, zip(names, children, strict=True))
    return x


MODULE = Kind(_open, keyed, _build, _write)


def container(cls: type) -> Kind | None:
    """Return how a Module is taken apart: a dict whose gradients lack what is frozen."""
    return MODULE if issubclass(cls, nn.Module) else None
