"""Equinox: filter_grad of a module with everything in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..library import Case
from ..problem import Numbers, loss
from .jax_ import wide


class Encoder(eqx.Module):
    w: Any
    b: Any
    count: Any
    act: Callable[..., Any]


class Decoder(eqx.Module):
    w: Any
    narrow: Any


class Spare(eqx.Module):
    w: Any
    rate: float = 0.5


class Net(eqx.Module):
    enc: Encoder
    dec: Decoder
    spare: Spare


def make(p: Numbers) -> Any:
    a = {name: jnp.asarray(x) for name, x in p.items()}
    enc = Encoder(a["w"], a["b"], jnp.arange(3), jnp.tanh)
    return Net(enc, Decoder(a["w"], a["narrow"]), Spare(a["unused"]))


def net_loss(m: Any, x: Any, y: Any) -> Any:
    return loss(m.enc.act, jnp.mean, wide, m.enc.w, m.enc.b, m.dec.w, m.dec.narrow, x, y)


def filter_grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (eqx.filter_grad(f)(model, x, y),)


def filter_value_and_grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return (eqx.filter_value_and_grad(f)(model, x, y)[1],)


CASES = {
    "filter_grad": Case(make, filter_grad, net_loss),
    "filter_value_and_grad": Case(make, filter_value_and_grad, net_loss),
}
