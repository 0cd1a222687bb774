"""Which parameters of a state a pattern means."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..state import Param, State
from ..tree.select import Where, chosen


def selected(state: State, where: Where) -> list[int]:
    """Return the parameters of a state, or of the part that it is, that a pattern selects.

    Raises:
        StructureError: there are none.
    """
    layout, at = state._box.layout, state._at
    inside = [
        (i, paths)
        for i, p in enumerate(layout.params)
        if (paths := [path[len(at) :] for path in p.paths if path[: len(at)] == at])
    ]
    if where is None and inside:
        return [i for i, _ in inside]
    # Only a function of the user's looks at what the array is.
    kinds = map(_struct, layout.params) if callable(where) else [None] * len(layout.params)
    known = dict(enumerate(kinds))
    return chosen(where, [(i, paths, known[i]) for i, paths in inside])


def _struct(param: Param) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(param.shape, jnp.dtype(param.dtype))
