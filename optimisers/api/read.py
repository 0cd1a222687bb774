"""What a step is made of, and what a model trains: totals, steps, parameters."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ..arrays import adapter_of
from ..arrays.ops import total
from ..state import State
from ..state.engine import closed, run_all
from ..state.plan import located
from ..state.state import check_arrays, copied
from ..tree import Path, flatten, outline, program, rebuild
from . import inputs
from .found import Ties, parameters
from .general import prepared
from .held import MISSING, flattened_all
from .update import Tied, check_arguments


def total_gradients(state: State, model: Any, grads: Any, *, tied: Tied = "parts") -> Any:
    """Return the gradients with those of tied places added: what the rules are given.

    Nothing is changed. Given to `update` again they make the same step.

    Args:
        state: from `setup`, or a part of it with the same part of the model.
        model: as it was set up.
        grads: nested like the model, as in `update`.
        tied: as in `update`.

    Returns:
        A tree nested like the model: for a tied parameter the total at its first place and None at
        the others; None where there is no gradient.

    Raises:
        OptimiserError: what `update` raises for gradients that do not fit.

    Examples:
        >>> w = np.ones(2)
        >>> model = {"enc": w, "out": w}
        >>> grads = {"enc": np.array([1.0, 2.0]), "out": np.array([5.0, 5.0])}
        >>> total_gradients(setup(Descent(), model), model, grads)
        {'enc': array([6., 7.]), 'out': None}
    """
    check_arguments(state, model, (grads,), tied)
    box, layout = state._box, state._box.layout
    leaves, (order,), plan = located(layout, state._at, model, (grads,))
    order = [*order, None]
    inputs.check_pruned(plan.prunes[0], order)
    check_arrays(layout, box.arrays)
    new: list[Any] = [None] * len(leaves)
    ties = {(u, k): indices for u, k, indices in plan.tied[0]}
    for u, unit in enumerate(layout.units):
        firsts = plan.grads[0][u](order)
        for k, (i, g) in enumerate(zip(unit.params, firsts, strict=True)):
            param, places = layout.params[i], plan.places[i]
            if not places:
                continue
            parts = [order[j] for j in ties[u, k]] if (u, k) in ties else [g]
            new[places[0]] = _total(parts, param.codes, param.shape, param.dtype, tied)
    return rebuild(model, program(outline(model).nodes, range(len(new))), new, False)


def _total(
    parts: Sequence[Any], codes: Sequence[str], shape: tuple[int, ...], dtype: str, tied: Tied
) -> Any:
    """Return the total of a parameter's gradients; a single one is returned as it was given."""
    known = []
    for part, code in zip(parts, codes, strict=True):
        g = inputs.gradient(part, code)
        if g is not None:
            inputs.check_one(g, code, shape, dtype)
            known.append((g, part))
    if len(known) < 2 or tied == "total":
        return known[0][1] if known else None
    whole = total([g for g, _ in known], dtype)
    adapter = adapter_of(type(known[0][1]))
    return whole if adapter is None or not adapter.host else adapter.array(np.asarray(whole))


def steps(
    state: State, model: Any, grads: Any = MISSING, *higher: Any, tied: Tied = "parts"
) -> tuple[State, Any]:
    """Return the next state, and what `update` would subtract from the model.

    The arguments are left as they were.

    Args:
        state: as in `update`.
        model: as in `update`.
        grads: as in `update`.
        *higher: as in `update`.
        tied: as in `update`.

    Returns:
        `(state, steps)`: steps are nested like the model, arrays of the parameter's library in the
        dtype in which it is computed (float32 for a 16-bit parameter); None where nothing moves.
        All places of a tied parameter have the one step.

    Raises:
        OptimiserError: what `update` raises.

    Examples:
        >>> model = {"w": np.ones(2), "b": np.ones(1)}
        >>> grads = {"w": np.array([1.0, -2.0]), "b": None}
        >>> steps(setup(Descent(0.5), model), model, grads)[1]
        {'w': array([ 0.5, -1. ]), 'b': None}
    """
    check_arguments(state, model, (grads, *higher), tied)
    found = flattened_all(state._box.layout, state._at, model, (grads, *higher), tied)
    call = prepared(state, *found, False)
    new, target = [None] * len(call.leaves), copied(state)
    for job, carried, moves in run_all(call.jobs, call.traced, steps=True):
        unit = call.layout.units[job.unit]
        for at in job.movable:
            places = call.plan.places[unit.params[job.members[at]]]
            for i in places:
                new[i] = (
                    new[places[0]]
                    if i > places[0]
                    else _own_kind(call.leaves[i], moves[at], call.traced)
                )
        closed(unit, target._box.arrays[job.unit], job, carried)
    return target, rebuild(model, program(outline(model).nodes, range(len(new))), new, False)


def _own_kind(x: Any, step: Any, traced: bool) -> Any:
    adapter = adapter_of(type(x))
    if traced or adapter is None or not adapter.host:
        return step
    return adapter.array(np.asarray(step))


def trainables(model: Any, path: bool = False, *, ties: Ties = None) -> list[Any]:
    """Return the parameters of a model: every array that `setup` would train.

    Args:
        model: as for `setup`.
        path: whether to return pairs of path and array.
        ties: as for `setup`; inside a JAX transformation, where identities are lost, a state says
            which places are one.

    Returns:
        The arrays themselves, so that a function of them is differentiable: each tied parameter
        once, at its first place. Or pairs `(path, array)`, the path as a tuple of keys.

    Raises:
        OptimiserError: what `setup` raises for a model and its ties.

    Examples:
        >>> model = {"enc": [np.ones(2), np.arange(3)], "act": np.tanh, "dec": np.zeros(1)}
        >>> trainables(model)
        [array([0.]), array([1., 1.])]
        >>> trainables(model, path=True)[1]
        (('enc', 0), array([1., 1.]))
    """
    leaves, _ = flatten(model)
    found, _ = parameters(outline(model), leaves, ties, warn=False)
    pairs: list[tuple[Path, Any]] = [(f.param.paths[0], f.x) for f in found]
    return pairs if path else list(map(itemgetter(1), pairs))
