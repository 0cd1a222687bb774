"""Penzai: the parameters that unbind_params takes out of a model, as objects and as values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from penzai import pz

from ..library import Case
from ..problem import SHAPES, Numbers, loss
from .jax_ import wide


@pz.pytree_dataclass
class Net(pz.nn.Layer):
    """A layer in which one parameter stands at two places."""

    w: Any
    b: Any
    again: Any
    narrow: Any
    unused: Any

    def __call__(self, argument: Any, **side: Any) -> Any:
        named = [p.value for p in (self.w, self.b, self.again, self.narrow)]
        arrays = [x.untag(*x.named_shape).unwrap() for x in named]
        return loss(jnp.tanh, jnp.mean, wide, *arrays, *argument)


def net(p: Numbers) -> Any:
    a = {}
    for name, x in p.items():
        named = pz.nx.wrap(jnp.asarray(x)).tag(*"ij"[: x.ndim])
        a[name] = pz.Parameter(value=named, label=name)
    return Net(a["w"], a["b"], a["w"], a["narrow"], a["unused"])


def objects(p: Numbers) -> Any:
    return pz.unbind_params(net(p))


def frozen(p: Numbers) -> Any:
    return pz.unbind_params(net(p), freeze=True)


def gradients(state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    layers, parameters = model
    held = tuple(p.freeze() if isinstance(p, pz.Parameter) else p for p in parameters)
    return ((None, jax.grad(lambda ps: pz.bind_variables(layers, ps)((x, y)))(held)),)


PLACES = {name: (1, i) for i, name in enumerate(SHAPES)}
CASES = {
    "Parameter": Case(objects, gradients, PLACES, extras="none in it"),
    "ParameterValue": Case(frozen, gradients, PLACES, extras="none in it"),
}
