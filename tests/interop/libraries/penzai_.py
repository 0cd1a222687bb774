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
    count: Any
    act: Any

    def __call__(self, argument: Any, **side: Any) -> Any:
        named = [p.value for p in (self.w, self.b, self.again, self.narrow)]
        arrays = [x.untag(*x.named_shape).unwrap() for x in named]
        return loss(self.act, jnp.mean, wide, *arrays, *argument)


def net(p: Numbers) -> Any:
    a = {}
    for name, x in {**p, "count": jnp.arange(3)}.items():
        named = pz.nx.wrap(jnp.asarray(x)).tag(*"ij"[: x.ndim])
        a[name] = pz.Parameter(value=named, label=name)
    return Net(a["w"], a["b"], a["w"], a["narrow"], a["unused"], a["count"], jnp.tanh)


def objects(p: Numbers) -> Any:
    return pz.unbind_params(net(p))


def frozen(p: Numbers) -> Any:
    return pz.unbind_params(net(p), freeze=True)


def net_loss(model: Any, x: Any, y: Any) -> Any:
    return pz.bind_variables(*model)((x, y))


def grad(f: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Differentiate parameters as values: JAX does not see into the objects."""
    layers, parameters = model
    held = tuple(p.freeze() if isinstance(p, pz.Parameter) else p for p in parameters)
    return (jax.grad(f)((layers, held), x, y),)


PLACES = {name: (1, i) for i, name in enumerate(SHAPES)}
OTHERS = {"count": (1, len(SHAPES)), "act": (0, "act")}
CASES = {
    "Parameter": Case(objects, grad, net_loss, PLACES, OTHERS),
    "ParameterValue": Case(frozen, grad, net_loss, PLACES, OTHERS),
}
