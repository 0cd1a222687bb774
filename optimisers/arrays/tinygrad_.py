"""tinygrad: tensors are assigned to and realised at once; their `.grad` is the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np

tinygrad: Any = import_module("tinygrad")  # by name: type checkers do without it
dtypes = tinygrad.dtypes
NAMES = {
    np.dtype(np.float64): dtypes.double,
    np.dtype(np.float32): dtypes.float,
    np.dtype(np.float16): dtypes.half,
    np.dtype(ml_dtypes.bfloat16): dtypes.bfloat16,
}
KINDS: dict[Any, np.dtype[Any]] = {kind: dtype for dtype, kind in NAMES.items()}


class TinygradAdapter:
    """tinygrad's answers."""

    name = "tinygrad"
    host = True
    bulk = None

    def is_array_type(self, cls: type) -> bool:
        """Tinygrad has one kind of array."""
        return issubclass(cls, tinygrad.Tensor)

    def is_parameter(self, x: Any) -> bool:
        """A tensor is trained unless it says that it is a buffer."""
        return bool(x.is_param)

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype in NumPy's words; object for those that are never trained."""
        return KINDS.get(x.dtype, np.dtype(object))

    def identity(self, x: Any) -> Any:
        """Only one object is one array."""
        return id(x)

    def check(self, x: Any, code: str) -> None:
        """Whatever device tinygrad uses, values are brought to the host and back."""

    def view(self, x: Any) -> Any:
        """Return the values, which may be computed only now."""
        memory = _memory(x)
        if memory is not None:
            return np.array(memory).reshape(x.shape)
        if x.dtype == dtypes.bfloat16:  # which NumPy lacks, and many a CPU cannot convert
            return x.bitcast(dtypes.uint16).numpy().view(ml_dtypes.bfloat16)
        return np.asarray(x.numpy())

    def gradient(self, g: Any) -> Any:
        """Return the array."""
        return self.view(g)

    def held(self, x: Any) -> Any:
        """Return what `backward()` left in the tensor."""
        return x.grad

    def may_write(self, x: Any) -> bool:
        """Every tensor can be assigned to."""
        return True

    def write(self, x: Any, value: np.ndarray[Any, Any]) -> Any:
        """Write the memory, or assign and realise, so that no graph grows from step to step."""
        memory = _memory(x)
        if memory is not None:
            memory[...] = value.reshape(-1)
            return x
        return x.assign(self.array(value).to(x.device)).realize()

    def like(self, x: Any, value: Any) -> Any:
        """Return a new tensor on the device of `x`."""
        new = self.array(np.asarray(value, dtype=self.dtype(x))).to(x.device).realize()
        return new.is_param_(x.is_param)

    def array(self, value: np.ndarray[Any, Any]) -> Any:
        """Return a tensor that is computed already, so that it shares nothing with `value`."""
        kind = NAMES.get(value.dtype)
        if kind is None:
            return tinygrad.Tensor(value).realize()
        new = tinygrad.Tensor.empty(value.shape, dtype=kind)
        if new.device == "CPU" and value.size:
            new.uop.buffer.ensure_allocated()
            _memory(new)[...] = value.reshape(-1)
            return new
        # A number without a shape would be a constant, and equal constants are one to tinygrad.
        flat, narrow = np.atleast_1d(value), value.dtype == ml_dtypes.bfloat16
        new = tinygrad.Tensor(flat.view(np.uint16) if narrow else flat)
        return (new.bitcast(kind) if narrow else new).reshape(value.shape).realize()

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Concatenate; gradients follow."""
        flat = [part.reshape(-1).cast(NAMES[np.dtype(dtype)]) for part in parts]
        return flat[0].cat(*flat[1:])

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Slice, reshape and cast; gradients follow."""
        return flat[where].reshape(shape).cast(NAMES[np.dtype(dtype)])


def _memory(x: Any) -> Any:
    """Return the memory of a tensor that is computed, on the CPU; None for any other.

    What the library itself does for a copy is a graph, compiled and run: a hundred times the work.
    """
    if x.device != "CPU" or x.dtype not in KINDS or 0 in x.shape:
        return None
    if not (x.uop.has_buffer_identity() and x.uop.is_realized):
        return None
    return np.frombuffer(x.uop.buffer.as_memoryview(force_zero_copy=True), dtype=KINDS[x.dtype])


ADAPTER = TinygradAdapter()
