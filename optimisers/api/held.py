"""The gradients of a call: those that were given, or those that the model's own arrays hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays import adapter_of
from ..errors import ArgumentError
from ..state import Layout
from ..state.plan import Plan, flattened
from ..tree import Path


class _Held:
    """Stands for gradients that were left out; `help(update)` shows it as the default."""

    def __repr__(self) -> str:
        return "<those that the model holds>"


MISSING: Any = _Held()


def flattened_all(
    layout: Layout, at: Path, model: Any, grads: Sequence[Any], tied: str
) -> tuple[list[Any], Plan, str]:
    """Return the leaves of model and gradients, the plan for them, and what ties mean.

    Raises:
        ArgumentError: no gradients are given, and no array of the model holds one.
    """
    if grads[0] is not MISSING:
        return *flattened(layout, at, (model, *grads)), tied
    # Nested as the model is, so it stands for its own gradients.
    flat, plan = flattened(layout, at, (model, model))
    leaves, _ = plan.split(flat)
    held = list(map(_held, leaves))
    if all(g is None for g in held):
        raise ArgumentError(
            "update(state, model, grads) needs gradients, nested like the model; None means none; "
            "they can be left out only where arrays of the model hold them, as torch's do in .grad "
            "after loss.backward()"
        )
    return [*leaves, *held], plan, "total"


def _held(x: Any) -> Any:
    adapter = adapter_of(type(x))
    return None if adapter is None else adapter.held(x)
