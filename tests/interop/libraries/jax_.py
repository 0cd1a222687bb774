"""jax.grad: every container that is registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from ..library import Case
from ..problem import Numbers, loss


def wide(x: Any) -> Any:
    return x.astype(jnp.float32)


def nest(p: Numbers) -> Any:
    """Return dicts of JAX arrays, with an integer array and a function among them."""
    a = {name: jnp.asarray(x) for name, x in p.items()}
    return {
        "enc": {"w": a["w"], "b": a["b"], "act": jnp.tanh, "count": jnp.arange(3)},
        "dec": {"w": a["w"], "narrow": a["narrow"]},
        "spare": {"w": a["unused"]},
    }


def nest_loss(m: Any, x: Any, y: Any) -> Any:
    enc, dec = m["enc"], m["dec"]
    return loss(enc["act"], jnp.mean, wide, enc["w"], enc["b"], dec["w"], dec["narrow"], x, y)


def grad(f: Any, tree: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (jax.grad(f)(tree, x, y),)


class Encoder(NamedTuple):
    w: Any
    b: Any
    count: Any


@jax.tree_util.register_dataclass
@dataclass
class Decoder:
    w: Any
    narrow: Any
    act: Any


@flax.struct.dataclass
class Spare:
    w: Any
    name: str = flax.struct.field(pytree_node=False, default="spare")


def registered(p: Numbers) -> Any:
    a = {name: jnp.asarray(x) for name, x in p.items()}
    enc, dec = Encoder(a["w"], a["b"], jnp.arange(3)), Decoder(a["w"], a["narrow"], jnp.tanh)
    return [(enc, dec), Spare(a["unused"])]


def registered_loss(m: Any, x: Any, y: Any) -> Any:
    (enc, dec), _ = m
    return loss(dec.act, jnp.mean, wide, enc.w, enc.b, dec.w, dec.narrow, x, y)


CASES = {
    "dicts": Case(nest, grad, nest_loss),
    "registered": Case(
        registered, grad, registered_loss,
        {"w": (0, 0, "w"), "b": (0, 0, "b"), "again": (0, 1, "w"), "narrow": (0, 1, "narrow"),
         "unused": (1, "w")},
        {"count": (0, 0, "count"), "act": (0, 1, "act")},
    ),
}  # fmt: skip
