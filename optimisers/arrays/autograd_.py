"""Autograd's boxes: NumPy arrays under differentiation, in which vectors are cut and joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import autograd.numpy
import numpy as np

from .numbers import is_complex
from .numpy_ import NumPyAdapter

anp: Any = autograd.numpy  # made at import time, so that no type checker can see into it


class AutogradAdapter(NumPyAdapter):
    """Autograd's answers."""

    name = "autograd"
    host = False
    bulk = None

    def is_array_type(self, cls: type) -> bool:
        """Boxes of arrays; those of dicts and lists are containers of Autograd's own."""
        return cls.__name__ == "ArrayBox"

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype of what is in the box."""
        dtype: np.dtype[Any] = x.dtype
        return dtype

    def identity(self, x: Any) -> Any:
        """Only one box is one array."""
        return id(x)

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Concatenate; Autograd follows."""
        return anp.concatenate([anp.reshape(part, -1).astype(dtype) for part in parts])

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Slice, reshape and cast; Autograd follows."""
        part = anp.reshape(flat[where], shape)
        real = flat.dtype.kind == "c" and not is_complex(dtype)
        return (anp.real(part) if real else part).astype(np.dtype(dtype))


ADAPTER = AutogradAdapter()
