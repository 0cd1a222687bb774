"""Which arrays of a model are the caller's own, and copies of those."""

from __future__ import annotations

from typing import Any

import jax

from ..ad.backend import Backend
from ..ad.parts import check_alive, objects_in
from ..arrays import adapter_of
from ..arrays.numbers import is_wide, precision
from ..arrays.ops import is_traced_type
from ..tree import flatten, outline, program, rebuild


def owned(model: Any, backend: Backend) -> Any:
    """Return a model in which NumPy and JAX arrays are copies, as are the containers above them.

    What the modules of a library that trains in place hold stays, and so do arrays of others. Ties
    stay ties.
    """
    leaves, _ = flatten(model)
    mine = [i for i, x in enumerate(leaves) if _is_callers(x)]
    if mine and backend.in_place:
        modules = [x for x in objects_in(model) if backend.knows(type(x))]
        held = {id(x) for module in modules for x in flatten(module)[0]}
        mine = [i for i in mine if id(leaves[i]) not in held]
    if not mine:
        return model
    places, copies = outline(model), {}
    for i in mine:
        x = leaves[i]
        check_alive(x, places.codes[i])
        adapter = adapter_of(type(x))
        assert adapter is not None
        key = adapter.identity(x)
        if key not in copies:
            with precision(is_wide(adapter.dtype(x))):
                copies[key] = x.copy()
        leaves[i] = copies[key]
    return rebuild(model, program(places.nodes, mine), leaves, False)


def _is_callers(x: Any) -> bool:
    adapter = adapter_of(type(x))
    if adapter is None or is_traced_type(type(x)):
        return False
    return adapter.name == "numpy" or isinstance(x, jax.Array)
