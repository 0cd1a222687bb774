"""jax.grad: every container that is registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from optimisers import combine, partition

from ..library import NEST, Case
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


def through_partition(f: Any) -> Any:
    """Return gradients of the trained half, with None for the rest."""

    def gradients(state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
        trained, rest = partition(state, model)
        return (jax.grad(lambda t: f(combine(t, rest), x, y))(trained),)

    return gradients


class Encoder(NamedTuple):
    w: Any
    b: Any


@jax.tree_util.register_dataclass
@dataclass
class Decoder:
    w: Any
    narrow: Any


@flax.struct.dataclass
class Spare:
    w: Any
    name: str = flax.struct.field(pytree_node=False, default="spare")


def registered(p: Numbers) -> Any:
    a = {name: jnp.asarray(x) for name, x in p.items()}
    return [(Encoder(a["w"], a["b"]), Decoder(a["w"], a["narrow"])), Spare(a["unused"])]


def registered_loss(m: Any, x: Any, y: Any) -> Any:
    (enc, dec), _ = m
    return loss(jnp.tanh, jnp.mean, wide, enc.w, enc.b, dec.w, dec.narrow, x, y)


CASES = {
    "dicts": Case(nest, through_partition(nest_loss), NEST, extras="through `partition`"),
    "registered": Case(
        registered,
        lambda state, model, x, y: (jax.grad(registered_loss)(model, x, y),),
        {"w": (0, 0, "w"), "b": (0, 0, "b"), "again": (0, 1, "w"), "narrow": (0, 1, "narrow"),
         "unused": (1, "w")},
        extras="none in it",
    ),
}  # fmt: skip
