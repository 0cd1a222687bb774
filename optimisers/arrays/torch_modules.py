"""torch.nn.Module as a container: its parameters and its modules are its children."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from .containers import Kind, Level, NameTuple

NUMBERED = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList)


def _name(x: Any, name: str) -> Hashable:
    return int(name) if name.isdigit() and isinstance(x, NUMBERED) else name


def _open(x: Any) -> Level:
    held = {n: c for part in (x._parameters, x._modules) for n, c in part.items() if c is not None}
    return Level(
        list(held.values()),
        tuple(_name(x, name) for name in held),
        dotted=True,
        untrained=tuple(x._buffers),
    )


def _get(x: Any, names: NameTuple) -> Sequence[Any]:
    return [_place(x, str(name))[str(name)] for name in names]


def _place(x: Any, name: str) -> dict[str, Any]:
    place: dict[str, Any] = x._parameters if name in x._parameters else x._modules
    return place


def _build(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    new = object.__new__(type(x))
    vars(new).update(vars(x), _parameters=dict(x._parameters), _modules=dict(x._modules))
    return _write(new, names, children)


def _write(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    moved = False
    for name, child in zip(names, children, strict=True):
        place = _place(x, str(name))
        moved = moved or place[str(name)] is not child
        place[str(name)] = child
    if moved and isinstance(x, torch.nn.RNNBase):
        x._init_flat_weights()  # which keeps the weights in a list as well
    return x


MODULE = Kind(_open, _get, _build, _write)


def container(cls: type) -> Kind | None:
    """Return how a Module is taken apart."""
    return MODULE if issubclass(cls, torch.nn.Module) else None
