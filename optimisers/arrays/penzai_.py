"""Penzai: a Parameter holds one named array, and may be written; all else is in JAX's registry."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from .containers import Kind, Level, NameTuple, attributes

pz: Any = import_module("penzai.pz")  # by name: type checkers do without it


def _open(x: Any) -> Level:
    return Level([x.value], ("value",), dotted=True)


def _build(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    return type(x)(label=x.label, value=children[0], metadata=x.metadata)


def _write(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    x.value = children[0]
    return x


PARAMETER = Kind(_open, attributes, _build, _write)


def container(cls: type) -> Kind | None:
    """Return how a Parameter is taken apart."""
    return PARAMETER if issubclass(cls, pz.Parameter) else None
