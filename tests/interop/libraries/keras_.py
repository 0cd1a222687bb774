"""Keras on JAX: the list of variables, through stateless_call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras

from ..library import Case
from ..problem import SHAPES, Numbers, loss
from .jax_ import wide


class Net(keras.Model):
    """A model whose variables are in a list, once each."""

    def __init__(self, p: Numbers) -> None:
        super().__init__()
        for name, x in p.items():
            held = self.add_weight(shape=x.shape, dtype=str(x.dtype), name=name)
            held.assign(x)
            setattr(self, name, held)
        self.count = self.add_weight(shape=(3,), dtype="int32", trainable=False, name="count")
        self.count.assign([0, 1, 2])
        self.built = True

    def call(self, inputs: Any) -> Any:
        p = [held.value for held in (self.w, self.b, self.w, self.narrow)]
        return loss(jnp.tanh, jnp.mean, wide, *p, *inputs)


NET: list[Any] = []


def make(p: Numbers) -> Any:
    NET[:] = [Net(p)]
    return NET[0].variables


def net_loss(held: Any, x: Any, y: Any) -> Any:
    *trained, count = map(value, held)
    return NET[0].stateless_call(trained, [count], (x, y))[0]


def value(x: Any) -> Any:
    return x.value if isinstance(x, keras.Variable) else x


def grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Differentiate the values of the variables, as JAX does not take them themselves."""
    return (jax.grad(f)(list(map(value, model)), x, y),)


PLACES = {name: (i,) for i, name in enumerate(SHAPES)}
CASES = {"on JAX": Case(make, grad, net_loss, PLACES, {"count": (len(SHAPES),)})}
