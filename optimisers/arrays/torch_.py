"""torch tensors: CPU memory seen as NumPy arrays, written in place."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

from ..errors import DeviceError, DtypeError
from .adapter import Shapes
from .numbers import is_complex

shape_of, dtype_of = attrgetter("shape"), attrgetter("dtype")
layout_of, is_cpu = attrgetter("layout"), attrgetter("is_cpu")

# torch and NumPy share no name for these: their bits are carried over as integers.
BITS = {
    getattr(torch, name): integer
    for name, integer in [
        ("bfloat16", "int16"),
        ("float8_e4m3fn", "uint8"),
        ("float8_e4m3fnuz", "uint8"),
        ("float8_e5m2", "uint8"),
        ("float8_e5m2fnuz", "uint8"),
    ]
    if hasattr(torch, name)
}

# What `Tensor.numpy` gives as it is.
PLAIN = {torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128}


@functools.cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Return a dtype in NumPy's words; object where it has none."""
    try:
        found: np.dtype[Any] = np.dtype(getattr(jnp, str(dtype).removeprefix("torch.")))
        return found
    except (AttributeError, TypeError):
        return np.dtype(object)


COPY: Any = getattr(torch, "_foreach_copy_", None)  # what torch's own optimisers copy with
OWN = frozenset((torch.Tensor, torch.nn.Parameter))


class TorchBulk:
    """Dense CPU tensors, copied by one call of torch; what it copies to counts as changed."""

    def facts(self, xs: Sequence[Any]) -> Any:
        """Return where tensors are and what they are: `.data` may be another tensor's by now."""
        kinds = set(map(dtype_of, xs)), set(map(layout_of, xs)), _are_simple(xs)
        return tuple(map(torch.Tensor.data_ptr, xs)), tuple(map(shape_of, xs)), kinds

    def fits(self, xs: Sequence[Any], dtype: str, shapes: Shapes, write: bool = False) -> bool:
        """Sparse ones, subclasses, those of devices, and complex ones, maybe conjugate, do not."""
        kinds = set(map(dtype_of, xs)), set(map(layout_of, xs)), set(map(is_cpu, xs))
        if is_complex(dtype) or kinds != ({getattr(torch, dtype)}, {torch.strided}, {True}):
            return False
        if not OWN.issuperset(map(type, xs)):
            return False
        if write and not (_are_simple(xs) and not any(map(torch.Tensor.is_inference, xs))):
            return False
        return tuple(map(shape_of, xs)) == shapes

    def view(self, x: Any) -> np.ndarray[Any, Any]:
        """Return the memory of a tensor, whatever it means, as a NumPy array."""
        found: np.ndarray[Any, Any] = ADAPTER.view(x)
        return found

    def shared(self, a: np.ndarray[Any, Any]) -> Any:
        """Return the same memory as a tensor."""
        dtype = getattr(torch, str(a.dtype))
        bits = BITS.get(dtype)
        return torch.from_numpy(a if bits is None else a.view(bits)).view(dtype)

    def copy(self, to: Sequence[Any], values: Sequence[Any]) -> None:
        """Copy values into tensors."""
        with torch.no_grad():
            COPY(list(to), list(values))


def _are_simple(xs: Sequence[Any]) -> bool:
    """Tell whether elements lie one after another, and mean what is there."""
    return all(map(torch.Tensor.is_contiguous, xs)) and not any(map(torch.Tensor.is_neg, xs))


class TorchAdapter:
    """torch's answers."""

    name = "torch"
    host = True
    bulk = TorchBulk() if COPY else None

    def is_array_type(self, cls: type) -> bool:
        """Tensors and Parameters."""
        return issubclass(cls, torch.Tensor)

    def is_parameter(self, x: Any) -> bool:
        """A dense tensor is trained; a Parameter unless its `requires_grad` was switched off."""
        dense = x.layout is torch.strided
        return dense and (x.requires_grad or not isinstance(x, torch.nn.Parameter))

    def dtype(self, x: Any) -> np.dtype[Any]:
        """Return the dtype in NumPy's words."""
        return numpy_dtype(x.dtype)

    def identity(self, x: Any) -> Any:
        """Tensors that are the same elements of the same storage are one parameter."""
        if x.numel() == 0 or x.layout is not torch.strided:
            return id(x)
        return ("torch", x.device, x.data_ptr(), tuple(x.shape), x.stride(), x.dtype)

    def check(self, x: Any, code: str) -> None:
        """Only CPU memory can be shared with JAX here."""
        if x.device.type != "cpu":
            raise DeviceError(
                f"cannot train {code}: the tensor is on device {x.device}, which JAX does not "
                "share; move the model with .cpu(), or hold its parameters as JAX arrays"
            )

    def view(self, x: Any) -> Any:
        """Return the tensor's memory as a NumPy array, without a copy where torch allows it."""
        if x.dtype in PLAIN and x.layout is torch.strided:
            return x.numpy(force=True)
        x = x.detach().cpu().resolve_conj().resolve_neg()
        if x.layout is not torch.strided:
            x = x.to_dense()
        dtype, bits = self.dtype(x), BITS.get(x.dtype)
        if dtype.kind == "O":
            raise DtypeError(f"NumPy and JAX have no dtype {x.dtype}")
        return x.numpy() if bits is None else x.view(getattr(torch, bits)).numpy().view(dtype)

    def gradient(self, g: Any) -> Any:
        """Sum a sparse gradient to a dense one, bring one from a device to the host."""
        if g.is_meta:
            raise DeviceError("a tensor on the meta device holds no numbers")
        return self.view(g)

    def held(self, x: Any) -> Any:
        """Return what `backward()` left in the tensor."""
        return x.grad if x.is_leaf else None  # torch warns of others

    def may_write(self, x: Any) -> bool:
        """Expanded tensors share memory between elements; lazily conjugated ones hide it."""
        shared = not x.is_contiguous() and any(
            s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)
        )
        return not (shared or x.is_conj() or x.is_neg())

    def write(self, x: Any, value: np.ndarray[Any, Any]) -> Any:
        """Copy a value into the tensor, so that autograd notices the change."""
        np.copyto(self.view(x), value)
        torch.autograd.graph.increment_version(x)
        return x

    def like(self, x: Any, value: Any) -> Any:
        """Return a new tensor, a Parameter if `x` is one, with the same `requires_grad`."""
        new = self.array(np.asarray(value, dtype=self.dtype(x)))
        if isinstance(x, torch.nn.Parameter):
            return torch.nn.Parameter(new, requires_grad=x.requires_grad)
        return new.requires_grad_(x.requires_grad)

    def array(self, value: np.ndarray[Any, Any]) -> Any:
        """Return a tensor."""
        value, dtype = np.array(value), getattr(torch, str(value.dtype))
        bits = BITS.get(dtype)
        return torch.from_numpy(value if bits is None else value.view(bits)).view(dtype)

    def joined(self, parts: Sequence[Any], dtype: str) -> Any:
        """Concatenate; autograd follows."""
        return torch.cat([part.reshape(-1).to(getattr(torch, dtype)) for part in parts])

    def piece(self, flat: Any, where: slice, shape: tuple[int, ...], dtype: str) -> Any:
        """Slice, reshape and cast; autograd follows, and nothing shares the vector's memory."""
        part = flat[where].reshape(shape)
        kind = getattr(torch, dtype)
        real = part.is_complex() and not kind.is_complex
        return (part.real if real else part).to(kind, copy=True)


ADAPTER = TorchAdapter()
