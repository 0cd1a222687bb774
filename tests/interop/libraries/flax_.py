"""Flax: NNX modules in both graph modes, Linen's dicts and FrozenDicts."""

from __future__ import annotations

from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
from flax import nnx
from flax.core import freeze

from ..library import Case
from ..problem import SHAPES, Numbers, data, loss
from .jax_ import grad, wide


class Encoder(nnx.Module):
    def __init__(self, w: Any, b: Any) -> None:
        self.w, self.b, self.act = w, b, jnp.tanh
        self.mean = nnx.BatchStat(jnp.ones(3))
        self.count = nnx.Variable(jnp.arange(3))


class Decoder(nnx.Module):
    def __init__(self, w: Any, narrow: Any) -> None:
        self.w, self.narrow = w, narrow


class Spare(nnx.Module):
    def __init__(self, w: Any) -> None:
        self.w = w


class Net(nnx.Module):
    def __init__(self, enc: Any, dec: Any, spare: Any) -> None:
        self.enc, self.dec, self.spare = enc, dec, spare


def make(p: Numbers) -> Any:
    a = {name: nnx.Param(jnp.asarray(x)) for name, x in p.items()}
    enc = Encoder(a["w"], a["b"])
    return Net(enc, Decoder(a["w"], a["narrow"]), Spare(a["unused"]))


def make_plain(p: Numbers) -> Any:
    """Return a model without what a tree cannot have: one variable at two places."""
    a = {name: nnx.Param(jnp.asarray(x)) for name, x in p.items()}
    again = nnx.Param(a["w"].get_value())
    enc = Encoder(a["w"], a["b"])
    return Net(enc, Decoder(again, a["narrow"]), Spare(a["unused"]))


def net_loss(m: Any, x: Any, y: Any) -> Any:
    return loss(
        m.enc.act, jnp.mean, wide, m.enc.w[...], m.enc.b[...], m.dec.w[...], m.dec.narrow[...], x, y
    )


def graph(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (nnx.grad(f)(model, x, y),)


def tree(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (nnx.grad(f, graph=False)(model, x, y),)


class Linen(flax.linen.Module):
    """Its parameters are one dict; what is used twice is in it once, and functions cannot be."""

    @flax.linen.compact
    def __call__(self, x: Any, y: Any) -> Any:
        zeros = flax.linen.initializers.zeros
        p = {name: self.param(name, zeros, shape) for name, shape in SHAPES.items()}
        self.param("count", lambda key: jnp.arange(3))
        return loss(jnp.tanh, jnp.mean, wide, p["w"], p["b"], p["w"], p["narrow"], x, y)


def linen(p: Numbers) -> Any:
    names = Linen().init(jax.random.key(0), *data())["params"]
    return {name: jnp.asarray(p.get(name, x)) for name, x in names.items()}


def linen_loss(p: Any, x: Any, y: Any) -> Any:
    return Linen().apply({"params": p}, x, y)


FLAT = {name: (name,) for name in SHAPES}
COUNT = {"count": ("count",)}
CASES = {
    "nnx graph": Case(make, graph, net_loss),
    "nnx tree": Case(make_plain, tree, net_loss),
    "linen dict": Case(linen, grad, linen_loss, FLAT, COUNT),
    "linen FrozenDict": Case(lambda p: freeze(linen(p)), grad, linen_loss, FLAT, COUNT),
}
