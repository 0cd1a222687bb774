"""Flax NNX: modules, their variables, and the State in which gradients come.

Linen's FrozenDict and the structs need nothing: JAX's registry knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from .containers import Kind, Level, NameTuple


def _open_variable(x: Any) -> Level:
    # Statistics, counters and random states are variables too: only Param is differentiated.
    left = () if isinstance(x, nnx.Param) else ("value",)
    return Level([x.get_raw_value()], ("value",), dotted=True, left=left)


def _get_variable(x: Any, names: NameTuple) -> Sequence[Any]:
    return [x.get_raw_value()]


def _build_variable(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    return x.copy(children[0])


def _write_variable(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    x.set_raw_value(children[0])  # as nnx.update does
    return x


def _names(x: Any) -> NameTuple:
    nodes = x._pytree__nodes
    names = [name for name in vars(x) if nodes.get(name) and name != "_pytree__state"]
    # Gradients name the items of a List by number.
    return tuple(map(int, names) if isinstance(x, nnx.List) else names)


def _open_module(x: Any) -> Level:
    names = _names(x)
    children = _get_module(x, names)
    # An array that is no Variable is data; a gradient for it would never come.
    left = [n for n, child in zip(names, children, strict=True) if isinstance(child, jax.Array)]
    return Level(children, names, dotted=True, optional=True, left=left)


def _get_module(x: Any, names: NameTuple) -> Sequence[Any]:
    held = vars(x)
    return [held[str(name)] for name in names]


def _build_module(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    new = object.__new__(type(x))
    vars(new).update(vars(x), _pytree__state=type(x._pytree__state)())
    return _write_module(new, names, children)


def _write_module(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    vars(x).update(zip(map(str, names), children, strict=True))
    return x


def _open_state(x: Any) -> Level:
    items = x.raw_mapping
    return Level(list(items.values()), tuple(items), optional=True)


def _get_state(x: Any, names: NameTuple) -> Sequence[Any]:
    return [x.raw_mapping[name] for name in names]


def _build_state(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    return type(x)({**x.raw_mapping, **dict(zip(names, children, strict=True))})


def _write_state(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    x.raw_mapping.update(zip(names, children, strict=True))
    return x


VARIABLE = Kind(_open_variable, _get_variable, _build_variable, _write_variable)
MODULE = Kind(_open_module, _get_module, _build_module, _write_module)
STATE = Kind(_open_state, _get_state, _build_state, _write_state)


def container(cls: type) -> Kind | None:
    """Return how NNX's containers are taken apart, None for those of Linen."""
    pairs = ((nnx.Variable, VARIABLE), (nnx.Pytree, MODULE), (nnx.State, STATE))
    return next((kind for base, kind in pairs if issubclass(cls, base)), None)
