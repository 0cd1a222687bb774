"""Haiku: two levels of dicts."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ..library import Case
from ..problem import SHAPES, Numbers, data, loss
from .jax_ import grad, wide


class Net(hk.Module):
    def __call__(self, x: Any, y: Any) -> Any:
        p = {name: hk.get_parameter(name, shape, init=jnp.zeros) for name, shape in SHAPES.items()}
        hk.get_parameter("count", (3,), jnp.int32, init=lambda shape, dtype: jnp.arange(3))
        return loss(jnp.tanh, jnp.mean, wide, p["w"], p["b"], p["w"], p["narrow"], x, y)


NET = hk.without_apply_rng(hk.transform(lambda x, y: Net("net")(x, y)))


def make(p: Numbers) -> Any:
    names = NET.init(jax.random.key(0), *data())["net"]
    return {"net": {name: jnp.asarray(p.get(name, x)) for name, x in names.items()}}


PLACES = {name: ("net", name) for name in SHAPES}
CASES = {"transform": Case(make, grad, NET.apply, PLACES, {"count": ("net", "count")})}
