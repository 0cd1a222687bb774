"""The same network in each library: what differs between them, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from optimisers import ad

from ..arrays.needs import need


class Library(NamedTuple):
    """What the network needs of a library.

    array: makes an array of data from NumPy's. layer: makes whatever holds the two parameters of a
    layer. affine: `(layer, x)` to what the layer makes of x. sum: adds all numbers of an array.
    """

    backend: ad.Backend
    array: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    log_softmax: Callable[[Any], Any]
    layer: Callable[[Any, Any], Any]
    affine: Callable[[Any, Any], Any]
    sum: Callable[[Any], Any]


def _sum(x: Any) -> Any:
    return x.sum()


def _affine(layer: Any, x: Any) -> Any:
    return x @ layer["w"] + layer["b"][None, :]


def _attributes(layer: Any, x: Any) -> Any:
    return x @ layer.w + layer.b[None, :]


def _jax() -> Library:
    import jax
    import jax.numpy as jnp

    def layer(w: Any, b: Any) -> Any:
        return {"w": jnp.asarray(w), "b": jnp.asarray(b)}

    backend = ad.AutoJAX()
    return Library(backend, jnp.asarray, jnp.tanh, jax.nn.log_softmax, layer, _affine, _sum)


def _equinox() -> Library:
    backend = ad.AutoEquinox()
    import equinox
    import jax.numpy as jnp

    class Layer(equinox.Module):
        w: Any = equinox.field(converter=jnp.asarray)
        b: Any = equinox.field(converter=jnp.asarray)

    return _jax()._replace(backend=backend, layer=Layer, affine=_attributes)


def _nnx() -> Library:
    backend = ad.AutoNNX()
    import jax.numpy as jnp
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self, w: Any, b: Any) -> None:
            self.w, self.b = nnx.Param(jnp.asarray(w)), nnx.Param(jnp.asarray(b))

    def affine(layer: Any, x: Any) -> Any:
        return x @ layer.w[...] + layer.b[...]

    return _jax()._replace(backend=backend, layer=Layer, affine=affine)


def _linen() -> Library:
    need("flax", "make layers of Flax Linen", "flax")
    import jax.numpy as jnp
    from flax import linen

    def layer(w: Any, b: Any) -> Any:
        return {"kernel": jnp.asarray(w), "bias": jnp.asarray(b)}

    def affine(layer: Any, x: Any) -> Any:
        return linen.Dense(len(layer["bias"])).apply({"params": layer}, x)

    return _jax()._replace(layer=layer, affine=affine)


def _haiku() -> Library:
    haiku = need("haiku", "make layers of Haiku", "dm-haiku")
    import jax.numpy as jnp

    def layer(w: Any, b: Any) -> Any:
        return {"linear": {"w": jnp.asarray(w), "b": jnp.asarray(b)}}

    def affine(layer: Any, x: Any) -> Any:
        outputs = len(layer["linear"]["b"])
        net = haiku.without_apply_rng(haiku.transform(lambda x: haiku.Linear(outputs)(x)))
        return net.apply(layer, x)

    return _jax()._replace(layer=layer, affine=affine)


def _penzai() -> Library:
    need("penzai", "make layers of Penzai", "penzai")
    import jax

    pz: Any = import_module("penzai.pz")

    def layer(w: Any, b: Any) -> Any:
        inputs, outputs = w.shape
        made = pz.nn.Affine.from_config(
            "layer", jax.random.key(0), {"in": inputs}, {"out": outputs}
        )
        unbound, (weights, offsets) = pz.unbind_params(made)
        weights.value, offsets.value = pz.nx.wrap(w).tag("in", "out"), pz.nx.wrap(b).tag("out")
        return unbound, (weights, offsets)

    def affine(layer: Any, x: Any) -> Any:
        named = pz.bind_variables(*layer)(pz.nx.wrap(x).tag("row", "in"))
        return named.untag("row", "out").unwrap()

    return _jax()._replace(layer=layer, affine=affine)


def _keras() -> Library:
    os.environ["KERAS_BACKEND"] = "jax"  # which is the one that differentiates here
    keras = need("keras", "make variables of Keras", "keras")
    ops = keras.ops

    def layer(w: Any, b: Any) -> Any:
        return {"w": keras.Variable(w), "b": keras.Variable(b)}

    def affine(layer: Any, x: Any) -> Any:
        return ops.matmul(x, layer["w"]) + layer["b"]

    return Library(
        ad.AutoJAX(), ops.convert_to_tensor, ops.tanh, ops.log_softmax, layer, affine, ops.sum
    )


def _autograd() -> Library:
    backend = ad.AutoAutograd()
    import autograd.numpy

    anp: Any = autograd.numpy

    def log_softmax(x: Any) -> Any:
        x = x - anp.max(x, axis=1, keepdims=True)
        return x - anp.log(anp.sum(anp.exp(x), axis=1, keepdims=True))

    def layer(w: Any, b: Any) -> Any:
        return {"w": w, "b": b}

    return Library(backend, lambda x: x, anp.tanh, log_softmax, layer, _affine, _sum)


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
    return Library(backend, tf.constant, tf.tanh, log_softmax, layer, _affine, tf.reduce_sum)


def _mlx() -> Library:
    backend = ad.AutoMLX()
    mx: Any = import_module("mlx.core")

    def layer(w: Any, b: Any) -> Any:
        return {"w": mx.array(w), "b": mx.array(b)}

    log_softmax = import_module("mlx.nn").log_softmax
    return Library(backend, mx.array, mx.tanh, log_softmax, layer, _affine, _sum)


def _tinygrad() -> Library:
    backend = ad.AutoTinygrad()
    tensor: Any = import_module("tinygrad").Tensor

    def layer(w: Any, b: Any) -> Any:
        return {"w": tensor(w).realize(), "b": tensor(b).realize()}

    return Library(backend, tensor, tensor.tanh, tensor.log_softmax, layer, _affine, _sum)


LIBRARIES: dict[str, Callable[[], Library]] = {
    "jax": _jax,
    "equinox": _equinox,
    "nnx": _nnx,
    "linen": _linen,
    "haiku": _haiku,
    "penzai": _penzai,
    "keras": _keras,
    "autograd": _autograd,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "mlx": _mlx,
    "tinygrad": _tinygrad,
}
