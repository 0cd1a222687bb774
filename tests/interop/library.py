"""What the tests ask of a library: make a model, and differentiate it in the library's own way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optimisers import combine, get_path, has_path, partition
from optimisers.arrays import adapter_of
from optimisers.tree import flatten

from .problem import Numbers

Path = tuple[Hashable, ...]
Loss = Callable[[Any, Any, Any], Any]
NEST: dict[str, Path] = {
    "w": ("enc", "w"), "b": ("enc", "b"), "again": ("dec", "w"), "narrow": ("dec", "narrow"),
    "unused": ("spare", "w"),
}  # fmt: skip

BOTH: dict[str, Path] = {"count": ("enc", "count"), "act": ("enc", "act")}


@dataclass(frozen=True)
class Case:
    """One way of asking one library for gradients.

    make: from the numbers, a model in the library's own arrays and containers.
    differentiate: `(loss, tree, x, y)` to the arguments after the model in `update`, just as the
        library returns them; none where its arrays hold them.
    loss: `(model, x, y)` to the loss.
    places: where the parameters are; no "again" if the library's models have one place for `w`.
    others: where an integer array and a function are; none that the library's models cannot have.
    tied: what `update` is told.
    """

    make: Callable[[Numbers], Any]
    differentiate: Callable[[Loss, Any, Any, Any], tuple[Any, ...]]
    loss: Loss
    places: Mapping[str, Path] = field(default_factory=lambda: NEST)
    others: Mapping[str, Path] = field(default_factory=lambda: BOTH)
    tied: str = "parts"

    def parameters(self, model: Any) -> dict[str, Any]:
        """Return the objects that are the parameters."""
        return {name: get_path(model, path) for name, path in self.places.items()}

    def found(self, model: Any, grads: tuple[Any, ...]) -> dict[str, Any]:
        """Return each gradient, or where there is none a word for what is in its place."""
        return {name: self._found(path, model, grads) for name, path in self.places.items()}

    def _found(self, path: Path, model: Any, grads: tuple[Any, ...]) -> Any:
        if not grads:
            g = get_path(model, path).grad
            return "None" if g is None else values(g)
        if not has_path(grads[0], path):
            return "name missing"
        g = get_path(grads[0], path)
        return "None" if g is None else values(g)


def whole(case: Case, state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Differentiate a model with everything that is in it."""
    return case.differentiate(case.loss, model, x, y)


def half(case: Case, state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Differentiate what is trained of it, with None for the rest."""
    trained, rest = partition(state, model)
    return case.differentiate(lambda t, x, y: case.loss(combine(t, rest), x, y), trained, x, y)


def alone(case: Case, state: Any, model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Differentiate what is trained of nested dicts, without the rest."""
    trained, rest = partition(state, model)

    def loss(t: Any, x: Any, y: Any) -> Any:
        return case.loss(combine(_filled(t, model), rest), x, y)

    grads = case.differentiate(loss, _without_none(trained), x, y)
    return tuple(_filled(g, model) for g in grads)


# The first that a library does not refuse is the one that it is asked in.
WAYS = {
    "as they are": whole,
    "through `partition`": half,
    "through `partition`, without None": alone,
}


def _without_none(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {name: _without_none(x) for name, x in tree.items() if x is not None}


def _filled(tree: Any, model: Any) -> Any:
    if not isinstance(model, dict) or tree is None:
        return tree
    return {name: _filled(tree.get(name), x) for name, x in model.items()}


def reached(x: Any, path: Path) -> Any:
    """Return what a user finds at a path of attributes and items, be it part of the tree or not."""
    for name in path:
        own: Any = x
        x = getattr(own, name) if isinstance(name, str) and hasattr(own, name) else own[name]
    return x


def values(x: Any) -> Any:
    """Return what an array, or a container of one array, has in it."""
    (leaf,), _ = flatten(x)
    adapter = adapter_of(type(leaf))
    assert adapter is not None, type(leaf)
    return np.asarray(adapter.gradient(leaf))
