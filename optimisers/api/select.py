"""Which parameters of a state a pattern means."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..state import State
from ..tree.select import Where, chosen


def selected(state: State, where: Where) -> list[int]:
    """Return the parameters of a state, or of the part that it is, that a pattern selects.

    Raises:
        StructureError: there are none.
    """
    layout, at = state._box.layout, state._at
    places = [
        (i, paths, jax.ShapeDtypeStruct(p.shape, jnp.dtype(p.dtype)))
        for i, p in enumerate(layout.params)
        if (paths := [path[len(at) :] for path in p.paths if path[: len(at)] == at])
    ]
    return chosen(where, places)
