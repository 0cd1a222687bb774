"""The same gradient from three libraries: what differs between them, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..arrays.needs import need


class Library(NamedTuple):
    """What the network needs of a library of arrays that can differentiate.

    `value_and_gradient(f)` returns a function of f's arguments: the value, and the gradient with
    respect to the first, nested like it.
    """

    array: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    log_softmax: Callable[[Any], Any]
    value_and_gradient: Callable[[Callable[..., Any]], Callable[..., tuple[Any, Any]]]


def _jax() -> Library:
    import jax
    import jax.numpy as jnp

    def value_and_gradient(f: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
        compiled: Callable[..., tuple[Any, Any]] = jax.jit(jax.value_and_grad(f))
        return compiled

    return Library(jnp.asarray, jnp.tanh, jax.nn.log_softmax, value_and_gradient)


def _autograd() -> Library:
    autograd = need("autograd", "differentiate with Autograd", "autograd")
    numpy = need("autograd.numpy", "differentiate with Autograd", "autograd")

    def log_softmax(x: Any) -> Any:
        x = x - numpy.max(x, axis=1, keepdims=True)
        return x - numpy.log(numpy.sum(numpy.exp(x), axis=1, keepdims=True))

    return Library(lambda x: x, numpy.tanh, log_softmax, autograd.value_and_grad)


def _torch() -> Library:
    torch = need("torch", "differentiate with torch", "torch")

    def value_and_gradient(f: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
        both = torch.func.grad_and_value(f)
        return lambda *args: both(*args)[::-1]

    log_softmax = partial(torch.log_softmax, dim=1)
    return Library(torch.from_numpy, torch.tanh, log_softmax, value_and_gradient)


LIBRARIES: dict[str, Callable[[], Library]] = {
    "jax": _jax,
    "autograd": _autograd,
    "torch": _torch,
}
