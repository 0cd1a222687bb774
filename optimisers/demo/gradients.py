"""The same network in each library: what differs between them, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from optimisers import ad


class Library(NamedTuple):
    """What the network needs of a library.

    array: makes an array of data from NumPy's. layer: makes whatever holds the two parameters of a
    layer. read: returns them. sum: adds all numbers of an array.
    """

    backend: ad.Backend
    array: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    log_softmax: Callable[[Any], Any]
    layer: Callable[[Any, Any], Any]
    read: Callable[[Any], tuple[Any, Any]]
    sum: Callable[[Any], Any]


def _sum(x: Any) -> Any:
    return x.sum()


def _read(layer: Any) -> tuple[Any, Any]:
    return layer["w"], layer["b"]


def _attributes(layer: Any) -> tuple[Any, Any]:
    return layer.w, layer.b


def _jax() -> Library:
    import jax
    import jax.numpy as jnp

    def layer(w: Any, b: Any) -> Any:
        return {"w": jnp.asarray(w), "b": jnp.asarray(b)}

    backend = ad.AutoJAX()
    return Library(backend, jnp.asarray, jnp.tanh, jax.nn.log_softmax, layer, _read, _sum)


def _equinox() -> Library:
    backend = ad.AutoEquinox()
    import equinox
    import jax.numpy as jnp

    class Layer(equinox.Module):
        w: Any = equinox.field(converter=jnp.asarray)
        b: Any = equinox.field(converter=jnp.asarray)

    return _jax()._replace(backend=backend, layer=Layer, read=_attributes)


def _nnx() -> Library:
    backend = ad.AutoNNX()
    import jax.numpy as jnp
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self, w: Any, b: Any) -> None:
            self.w, self.b = nnx.Param(jnp.asarray(w)), nnx.Param(jnp.asarray(b))

    def read(layer: Any) -> tuple[Any, Any]:
        return layer.w[...], layer.b[...]

    return _jax()._replace(backend=backend, layer=Layer, read=read)


def _autograd() -> Library:
    backend = ad.AutoAutograd()
    import autograd.numpy

    anp: Any = autograd.numpy

    def log_softmax(x: Any) -> Any:
        x = x - anp.max(x, axis=1, keepdims=True)
        return x - anp.log(anp.sum(anp.exp(x), axis=1, keepdims=True))

    def layer(w: Any, b: Any) -> Any:
        return {"w": w, "b": b}

    return Library(backend, lambda x: x, anp.tanh, log_softmax, layer, _read, _sum)


def _torch() -> Library:
    backend = ad.AutoTorch()
    import torch

    class Layer(torch.nn.Module):
        def __init__(self, w: Any, b: Any) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.from_numpy(w))
            self.b = torch.nn.Parameter(torch.from_numpy(b))

    log_softmax = partial(torch.log_softmax, dim=1)
    return Library(backend, torch.from_numpy, torch.tanh, log_softmax, Layer, _attributes, _sum)


def _tensorflow() -> Library:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # it would tell for what processor it is
    backend = ad.AutoTensorFlow()
    tf: Any = import_module("tensorflow")

    def layer(w: Any, b: Any) -> Any:
        return {"w": tf.Variable(w), "b": tf.Variable(b)}

    log_softmax = tf.nn.log_softmax
    return Library(backend, tf.constant, tf.tanh, log_softmax, layer, _read, tf.reduce_sum)


def _mlx() -> Library:
    backend = ad.AutoMLX()
    mx: Any = import_module("mlx.core")

    def layer(w: Any, b: Any) -> Any:
        return {"w": mx.array(w), "b": mx.array(b)}

    log_softmax = import_module("mlx.nn").log_softmax
    return Library(backend, mx.array, mx.tanh, log_softmax, layer, _read, _sum)


def _tinygrad() -> Library:
    backend = ad.AutoTinygrad()
    tensor: Any = import_module("tinygrad").Tensor

    def layer(w: Any, b: Any) -> Any:
        return {"w": tensor(w).realize(), "b": tensor(b).realize()}

    return Library(backend, tensor, tensor.tanh, tensor.log_softmax, layer, _read, _sum)


LIBRARIES: dict[str, Callable[[], Library]] = {
    "jax": _jax,
    "equinox": _equinox,
    "nnx": _nnx,
    "autograd": _autograd,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "mlx": _mlx,
    "tinygrad": _tinygrad,
}
