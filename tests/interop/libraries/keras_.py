"""Keras on JAX: the list of trainable variables, through stateless_call."""

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
        self.built = True

    def call(self, inputs: Any) -> Any:
        p = [held.value for held in (self.w, self.b, self.w, self.narrow)]
        return loss(jnp.tanh, jnp.mean, wide, *p, *inputs)


NET: list[Any] = []


def make(p: Numbers) -> Any:
    NET[:] = [Net(p)]
    return NET[0].trainable_variables


def gradients(state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Differentiate the values of the variables, as Keras cannot see into others than its own."""

    def value(arrays: Any) -> Any:
        return NET[0].stateless_call(arrays, NET[0].non_trainable_variables, (x, y))[0]

    return (jax.grad(value)([v.value for v in model]),)


PLACES = {name: (i,) for i, name in enumerate(SHAPES)}
CASES = {"on JAX": Case(make, gradients, PLACES, extras="none in it")}
