"""Where everything is, for one structure of model and gradients: found once, then only indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ..arrays import adapter_of, describe
from ..arrays.numbers import is_trainable_dtype
from ..errors import StateError
from ..tree import Match, Node, Outline, Path, holding, match, outline
from .layout import Layout

MOST_PLANS = 64


@dataclass(frozen=True)
class Plan:
    """Indices into the leaves of a model and of its gradients.

    places: for each parameter all leaves where it stands, empty if it is outside this part.
    inside: for each unit which of its parameters are in this part; empty if none is.
    firsts: for each unit, how to fetch its parameters from the model's leaves.
    grads: for each order and unit, how to fetch its gradients (the last leaf stands for None).
    tied: for each order the parameters at several places, as (unit, place in it, gradients).
    prunes: for each order the leaves that must be None, with the code of the container there.
    """

    nodes: tuple[Node, ...]
    held: tuple[bool, ...]
    places: tuple[tuple[int, ...], ...]
    inside: tuple[tuple[bool, ...], ...]
    firsts: tuple[Callable[[Any], tuple[Any, ...]], ...]
    grads: tuple[tuple[Callable[[Any], tuple[Any, ...]], ...], ...]
    tied: tuple[tuple[tuple[int, int, tuple[int, ...]], ...], ...]
    prunes: tuple[tuple[tuple[int, str], ...], ...]


def getter(indices: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that fetches items as a tuple, also where there is one or none."""
    if len(indices) > 1:
        return itemgetter(*indices)
    if indices:
        (i,) = indices
        return lambda leaves: (leaves[i],)
    return lambda leaves: ()


def plan_for(
    layout: Layout, at: Path, model: Any, leaves: Sequence[Any], treedef: Any, grads: Sequence[Any]
) -> Plan:
    """Return the plan for a model and gradients given as `(tree, treedef)`; walk them if it is new."""
    key = (at, treedef, *(treedef for _, treedef in grads))
    with layout.lock:
        plan: Plan | None = layout.plans.get(key)
        if plan is not None:
            return plan
    plan = _made(layout, at, model, leaves, [tree for tree, _ in grads])
    with layout.lock:
        layout.plans[key] = plan
        while len(layout.plans) > MOST_PLANS:
            layout.plans.popitem(last=False)
    return plan


def _made(
    layout: Layout, at: Path, model: Any, leaves: Sequence[Any], grads: Sequence[Any]
) -> Plan:
    found = outline(model)
    places = _places(layout, at, found)
    _no_strangers(layout, at, found, leaves)
    trained = [i for indices in places for i in indices]
    matches = [match(found, outline(g, "grads"), trained) for g in grads]
    units = [[places[p] for p in unit.params] for unit in layout.units]
    return Plan(
        tuple(found.nodes),
        holding(found.nodes, frozenset(trained)),
        places,
        tuple(tuple(map(bool, unit)) if any(unit) else () for unit in units),
        tuple(getter([p[0] if p else 0 for p in unit]) for unit in units),
        tuple(tuple(getter(_firsts(unit, m)) for unit in units) for m in matches),
        tuple(_tied(units, m) for m in matches),
        tuple(m.prunes for m in matches),
    )


def _firsts(unit: Sequence[tuple[int, ...]], m: Match) -> list[int]:
    return [m.gradient[p[0]] if p else -1 for p in unit]


def _tied(
    units: Sequence[Sequence[tuple[int, ...]]], m: Match
) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    return tuple(
        (u, k, tuple(m.gradient[i] for i in places))
        for u, unit in enumerate(units)
        for k, places in enumerate(unit)
        if len(places) > 1
    )


def _places(layout: Layout, at: Path, found: Outline) -> tuple[tuple[int, ...], ...]:
    """Find each parameter of the state in the model; `at` is where the model's part begins."""
    where = {path: i for i, path in enumerate(found.paths)}
    result = []
    for param in layout.params:
        inside = [path[len(at) :] for path in param.paths if path[: len(at)] == at]
        if inside and len(inside) < len(param.paths):
            raise StateError(
                f"cannot update a part: {' and '.join(param.codes)} are one parameter, "
                "and only some of them are in this part; update the whole"
            )
        for path in inside:
            if path not in where:
                code = param.codes[param.paths.index((*at, *path))]
                raise StateError(
                    f"the state does not belong to this model: it has a parameter at {code}, "
                    "where the model has none; call setup for this model"
                )
        result.append(tuple(where[path] for path in inside))
    return tuple(result)


def _no_strangers(layout: Layout, at: Path, found: Outline, leaves: Sequence[Any]) -> None:
    for path, code, x in zip(found.paths, found.codes, leaves, strict=True):
        whole = (*at, *path)
        if whole in layout.places or whole in layout.untrained:
            continue
        adapter = adapter_of(type(x))
        if adapter is not None and is_trainable_dtype(adapter.dtype(x)):
            raise StateError(
                f"the state does not belong to this model: the model has {describe(x)} at {code}, "
                "which the state does not know; call setup for this model"
            )
