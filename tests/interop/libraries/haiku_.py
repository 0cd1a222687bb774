"""Haiku: two levels of dicts."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ..library import Case
from ..problem import SHAPES, Numbers, data, loss
from .jax_ import wide


class Net(hk.Module):
    def __call__(self, x: Any, y: Any) -> Any:
        p = {name: hk.get_parameter(name, shape, init=jnp.zeros) for name, shape in SHAPES.items()}
        return loss(jnp.tanh, jnp.mean, wide, p["w"], p["b"], p["w"], p["narrow"], x, y)


NET = hk.without_apply_rng(hk.transform(lambda x, y: Net("net")(x, y)))


def make(p: Numbers) -> Any:
    names = NET.init(jax.random.key(0), *data())
    return {"net": {name: jnp.asarray(p[name]) for name in names["net"]}}


def gradients(state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (jax.grad(NET.apply)(model, x, y),)


CASES = {"transform": Case(make, gradients, {n: ("net", n) for n in SHAPES}, extras="none in it")}
