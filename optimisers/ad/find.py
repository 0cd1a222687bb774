"""Which backend a model asks for: found from the classes of its containers and arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..arrays import adapter_of
from ..arrays.numbers import is_trainable_dtype
from ..errors import ArgumentError
from .backend import BACKENDS, Backend
from .parts import NOTHING, objects_in


def backend_of(ad: Any, model: Any) -> Backend:
    """Return the backend that was named, or the one that the model's classes ask for.

    A container that is a library's own (an Equinox module) counts before the arrays in it, and
    arrays of a library before NumPy's, which any of them takes.

    Raises:
        ArgumentError: `ad` is not a backend, or none or several are found.
    """
    if isinstance(ad, Backend):
        return ad
    if ad is not None:
        hint = f": {ad.__name__}()" if isinstance(ad, type) and issubclass(ad, Backend) else ""
        made = "make a backend of it" if hint else f"use {_names(BACKENDS, 'or')}"
        raise ArgumentError(f"ad must be a backend such as AutoJAX(), got {ad!r}; {made}{hint}")
    containers, arrays = _classes(model)
    numpy = {kind for kind in arrays if issubclass(kind, np.ndarray)}
    found = _known(containers) or _known(arrays - numpy) or _known(numpy)
    if len(found) == 1:
        return found[0]()
    if found:
        raise ArgumentError(
            f"the model asks for {_names(found)} at once; say which one: ad={found[0].__name__}()"
        )
    if not arrays:
        raise ArgumentError(NOTHING)
    kinds = ", ".join(sorted(kind.__name__ for kind in arrays))
    raise ArgumentError(f"no backend is known for the arrays of the model ({kinds}); give one: ad=")


def _classes(model: Any) -> tuple[set[type], set[type]]:
    """Return the classes of containers, and of arrays that are trained."""
    containers, arrays = set(), set()
    for x in objects_in(model):
        adapter = adapter_of(type(x))
        if adapter is None:
            containers.add(type(x))
        elif is_trainable_dtype(adapter.dtype(x)):
            arrays.add(type(x))
    return containers, arrays


def _known(kinds: Iterable[type]) -> list[type[Backend]]:
    """Return the backends that know one of these classes, each once."""
    return [backend for backend in BACKENDS if any(map(backend.knows, kinds))]


def _names(backends: Iterable[type[Backend]], word: str = "and") -> str:
    *most, last = sorted({backend.__name__ for backend in backends})
    return f"{', '.join(most)} {word} {last}" if most else last
