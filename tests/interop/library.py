"""What the tests ask of a library: make a model, and differentiate it in the library's own way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimisers import get_path, has_path, partition
from optimisers.arrays import adapter_of
from optimisers.tree import flatten

from .problem import Numbers

Path = tuple[Hashable, ...]
NEST: dict[str, Path] = {
    "w": ("enc", "w"), "b": ("enc", "b"), "again": ("dec", "w"), "narrow": ("dec", "narrow"),
    "unused": ("spare", "w"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One way of asking one library for gradients.

    make: from the numbers, a model in the library's own arrays and containers.
    gradients: `(state, model, x, y)` to the arguments after the model in `update`, just as the
        library returns them; none where its arrays hold them.
    places: where the parameters are; no "again" if the library's models have one place for `w`.
    tied: what `update` is told.
    extras: how an integer array and a function in the model reach the library.
    """

    make: Callable[[Numbers], Any]
    gradients: Callable[[Any, Any, Any, Any], tuple[Any, ...]]
    places: Mapping[str, Path]
    tied: str = "parts"
    extras: str = "as they are"

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


def trained_only(state: Any, model: Any) -> Any:
    """Return what is trained of nested dicts, for a library that refuses even None."""
    return _without_none(partition(state, model)[0])


def _without_none(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {name: _without_none(x) for name, x in tree.items() if x is not None}


def filled(grads: Any, model: Any) -> Any:
    """Return gradients of `trained_only` with None for the rest of the model."""
    if not isinstance(model, dict) or grads is None:
        return grads
    return {name: filled(grads.get(name), x) for name, x in model.items()}


def values(x: Any) -> Any:
    """Return what an array, or a container of one array, has in it."""
    (leaf,), _ = flatten(x)
    adapter = adapter_of(type(leaf))
    assert adapter is not None, type(leaf)
    return np.asarray(adapter.gradient(leaf))
