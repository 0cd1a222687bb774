"""The numbers that `optax.inject_hyperparams` keeps in a state, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

RATE = "learning_rate"  # is called eta here


def fields_in(state: Any) -> dict[str, tuple[str, Any]]:
    """Return for each injected number its name as a field of a rule, and its value.

    Those that follow a schedule are not among them, nor those of which a state has several.
    """
    found = list(_numbers(state))
    times = Counter(name for name, _ in found)
    return {
        name: ("eta" if name == RATE else name, _plain(value))
        for name, value in found
        if times[name] == 1
    }


def with_numbers(state: Any, numbers: Mapping[str, Any]) -> Any:
    """Return a state in which injected numbers have other values."""
    if not numbers:
        return state

    def inside(part: Any) -> Any:
        if not _is_injected(part):
            return part
        new = {
            name: jnp.asarray(numbers[name], value.dtype) if name in numbers else value
            for name, value in part.hyperparams.items()
        }
        inner = with_numbers(part.inner_state, numbers)
        return part._replace(hyperparams=new, inner_state=inner)

    return jax.tree.map(inside, state, is_leaf=_is_injected)


def _is_injected(part: Any) -> bool:
    return hasattr(part, "hyperparams") and hasattr(part, "inner_state")


def _numbers(state: Any) -> Iterator[tuple[str, Any]]:
    for part in jax.tree.leaves(state, is_leaf=_is_injected):
        if _is_injected(part):
            scheduled = getattr(part, "hyperparams_states", {})
            for name, value in part.hyperparams.items():
                number = jnp.ndim(value) == 0 and jnp.issubdtype(value.dtype, jnp.floating)
                if number and name not in scheduled and name.isidentifier() and name != "tx":
                    yield name, value
            yield from _numbers(part.inner_state)


def _plain(value: Any) -> Any:
    """Return a number as it was written: 0.1, not 0.10000000149."""
    return value if isinstance(value, Tracer) else float(str(np.asarray(value)))
