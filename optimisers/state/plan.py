"""Where everything is, for one structure of model and gradients: found once, then only indices."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_, itemgetter
from typing import Any

import jax
import numpy as np

from ..arrays import adapter_of, describe, is_array_type
from ..arrays.numbers import is_trainable_dtype
from ..errors import StateError
from ..tree import Match, Outline, Path, Program, flatten, match, outline, program
from ..tree.nest import Nest, getter
from ..tree.outline import readable
from .layout import Layout

MOST_PLANS = 128


@dataclass(frozen=True)
class Plan:
    """Indices into the leaves of a model and of its gradients.

    parts: where the leaves of the model, and of each order of gradients, are in all leaves.
    places: for each parameter all leaves where it stands, empty if it is outside this part.
    inside: for each unit which of its parameters are in this part; empty if none is.
    firsts: for each unit, how to fetch its parameters from the model's leaves.
    grads: for each order and unit, how to fetch its gradients (the last leaf stands for None).
    tied: for each order the parameters at several places, as (unit, place in it, gradients).
    prunes: for each order the leaves that must be None, with the code of the container there.
    others: the leaves that are no parameter of this part.
    free: how to fetch those of them that must not become one either.
    whole: all parameters at once, where a call may be checked as one (see `Whole`).
    at: where in the state's model this model is. types: of the leaves.
    nest: how to read model and gradients quickly, where all their containers have items.
    """

    parts: tuple[tuple[int, int], ...]
    program: Program
    places: tuple[tuple[int, ...], ...]
    inside: tuple[tuple[bool, ...], ...]
    firsts: tuple[Callable[[Any], tuple[Any, ...]], ...]
    grads: tuple[tuple[Callable[[Any], tuple[Any, ...]], ...], ...]
    tied: tuple[tuple[tuple[int, int, tuple[int, ...]], ...], ...]
    prunes: tuple[tuple[tuple[int, str], ...], ...]
    others: tuple[int, ...]
    free: Callable[[Any], tuple[Any, ...]]
    whole: Whole | None
    at: Path
    types: frozenset[type]
    nest: Nest | None

    def read(self, trees: tuple[Any, ...]) -> list[Any] | None:
        """Return all leaves, if these are the same nests again."""
        if self.nest is None or (flat := self.nest.read(trees)) is None:
            return None
        # A container of another class would be taken for a leaf.
        return flat if self.types.issuperset(map(type, flat)) else None

    def split(self, flat: list[Any]) -> list[list[Any]]:
        """Return the leaves of the model, and those of each order of gradients."""
        return [flat[begin:end] for begin, end in self.parts]


@dataclass(eq=False)
class Whole:
    """Every parameter of a model of arrays that are all JAX's, or all of host memory, by units.

    Checking one long tuple costs a fraction of checking each unit: the quick way of a step.

    arrays: how to fetch the parameters, and after them the gradients order by order.
    others: how to fetch the other leaves of the model, if it has any.
    place: how to put the results, and after them the other leaves, in the order of the leaves.
    leaves: how many the model has.
    parts: for each unit, how to cut its parameters, and its gradients order by order, from those.
    asks: whether any rule asks for a reduction. host: whether they are host memory, in packs only.
    straight: how to read and write all, if the only unit has them in the order of the leaves.
    avals: the abstract values (shape and dtype) of the arrays that were found to fit last time.
    programs: for each unit, state given away or not, and call: its program and its `begins`.
    classes: of the arrays in the last step, one or none.
    """

    arrays: Callable[[Any], tuple[Any, ...]]
    others: Callable[[Any], tuple[Any, ...]] | None
    place: Callable[[Any], tuple[Any, ...]]
    leaves: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    parts: tuple[Callable[[Any], tuple[tuple[Any, ...], ...]], ...]
    asks: bool
    host: bool
    straight: Nest | None
    avals: Sequence[Any] = ()
    programs: dict[tuple[int, bool, bool], tuple[Any, Any]] = field(default_factory=dict)
    classes: set[type] = field(default_factory=set)


def located(
    layout: Layout, at: Path, model: Any, grads: Sequence[Any]
) -> tuple[list[Any], list[list[Any]], Plan]:
    """Return the leaves of a model and of its gradients, and the plan for them."""
    flat, plan = flattened(layout, at, (model, *grads))
    leaves, *orders = plan.split(flat)
    return leaves, orders, plan


def flattened(layout: Layout, at: Path, trees: tuple[Any, ...]) -> tuple[list[Any], Plan]:
    """Return the leaves of a model and after them those of its gradients, and the plan for them.

    JAX flattens plain containers faster than optree does, but it drops None, and takes classes that
    are registered with us alone for leaves. So its structures are used as keys only after both have
    been seen to give the same leaves.
    """
    if known := known_plan(layout, at, trees):
        return known
    pairs = [flatten(tree, "grads" if i else "model") for i, tree in enumerate(trees)]
    parts = [leaves for leaves, _ in pairs]
    key = (at, *(structure for _, structure in pairs))
    plan = layout.plans.get(key) or _made(layout, at, trees[0], parts, trees[1:])
    if _has_strangers(plan, parts[0]):
        _no_strangers(layout, at, outline(trees[0]), parts[0])
    _keep(layout, key, plan)
    layout.recent[0] = plan
    flat, structure = _jax_leaves(layout, trees)
    if structure is not None and _are_parts(structure, flat, parts):
        with contextlib.suppress(TypeError):  # static fields without a hash
            _keep(layout, (at, structure), plan)
    return list(itertools.chain(*parts)), plan


def known_plan(layout: Layout, at: Path, trees: tuple[Any, ...]) -> tuple[list[Any], Plan] | None:
    """Return what `flattened` does, if JAX's structure of the trees has been seen before."""
    plan = layout.recent[0]
    if plan is None or plan.at != at or (flat := plan.read(trees)) is None:
        if not layout.is_plain:
            return None
        try:
            flat, structure = jax_flatten(trees)
            plan = layout.plans.get((at, structure))
        except REFUSED:
            return None
        if plan is None:
            return None
        layout.recent[0] = plan
    if plan.others and _has_strangers(plan, flat):
        _no_strangers(layout, at, outline(trees[0]), plan.split(flat)[0])
    return flat, plan


jax_flatten = jax.tree_util.default_registry.flatten
# A tree that will be refused; or one with static fields without a hash.
REFUSED = (TypeError, ValueError, RecursionError, SystemError)


def _jax_leaves(layout: Layout, trees: tuple[Any, ...]) -> tuple[list[Any], Any]:
    try:
        return jax_flatten(trees) if layout.is_plain else ([], None)
    except REFUSED:
        return [], None


def _are_parts(structure: Any, leaves: Sequence[Any], parts: Sequence[Sequence[Any]]) -> bool:
    """Tell whether JAX's leaves of all trees are those that optree found in each of them."""
    sizes = [tree.num_leaves for tree in structure.children()]
    return sizes == list(map(len, parts)) and all(map(is_, leaves, itertools.chain(*parts)))


def _keep(layout: Layout, key: Any, plan: Plan) -> None:
    with layout.lock:
        layout.plans[key] = plan
        while len(layout.plans) > MOST_PLANS:
            layout.plans.popitem(last=False)


def _made(
    layout: Layout, at: Path, model: Any, leaves: Sequence[Sequence[Any]], grads: Sequence[Any]
) -> Plan:
    found = outline(model)
    places = _places(layout, at, found)
    trained = [i for indices in places for i in indices]
    outlines = [outline(g, "grads") for g in grads]
    matches = [match(found, each, trained) for each in outlines]
    steps, reading = program(found.nodes, frozenset(trained)), readable([found, *outlines])
    units = [[places[p] for p in unit.params] for unit in layout.units]
    others = tuple(sorted(set(range(len(leaves[0]))).difference(trained)))
    ends = list(itertools.accumulate(map(len, leaves)))
    straight = None if at or steps.nest is None else reading
    return Plan(
        tuple(zip([0, *ends], ends, strict=False)),
        steps,
        places,
        tuple(tuple(map(bool, unit)) if any(unit) else () for unit in units),
        tuple(getter([p[0] if p else 0 for p in unit]) for unit in units),
        tuple(tuple(getter(_firsts(unit, m)) for unit in units) for m in matches),
        tuple(_tied(units, m) for m in matches),
        tuple(m.prunes for m in matches),
        others,
        getter([i for i in others if (*at, *found.paths[i]) not in layout.untrained]),
        _whole(layout, units, matches, others, [0, *ends], straight),
        at,
        frozenset(map(type, itertools.chain(*leaves))),
        reading,
    )


def _whole(
    layout: Layout, units: Sequence[Sequence[tuple[int, ...]]], matches: Sequence[Match],
    others: Sequence[int], begins: Sequence[int], straight: Nest | None,
) -> Whole | None:  # fmt: skip
    """Return how to fetch all parameters at once, if each of them moves by itself in every step."""
    specs = [unit.spec for unit in layout.units]
    inside = all(p for unit in units for p in unit)
    if not (layout.is_quick and inside) or any(m.prunes for m in matches):
        return None
    if any(unit.host and not unit.spec.packed for unit in layout.units):
        return None
    if any(-1 in _firsts(unit, m) for unit in units for m in matches):
        return None
    firsts = [p[0] for unit in units for p in unit]
    grads = [
        begin + i
        for m, begin in zip(matches, begins[1:], strict=False)
        for unit in units
        for i in _firsts(unit, m)
    ]
    ends, n = list(itertools.accumulate(map(len, units))), len(firsts)
    return Whole(
        getter([*firsts, *grads]),
        getter(others) if others else None,
        getter(np.argsort([*firsts, *others]).tolist()),
        begins[1],
        tuple(shape for spec in specs for shape in spec.shapes),
        tuple(np.dtype(spec.dtype) for spec in specs for _ in spec.shapes),
        tuple(
            itemgetter(*(slice(k + begin, k + end) for k in range(0, n * (1 + len(matches)), n)))
            for begin, end in zip([0, *ends], ends, strict=False)
        ),
        any(spec.asks for spec in specs),
        layout.units[0].host,
        straight if len(units) == 1 and [*firsts, *grads] == list(range(begins[-1])) else None,
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


def _has_strangers(plan: Plan, leaves: Sequence[Any]) -> bool:
    free = plan.free(leaves)
    return any(map(is_array_type, set(map(type, free)))) and any(map(_is_trainable, free))


def _is_trainable(x: Any) -> bool:
    adapter = adapter_of(type(x))
    return adapter is not None and is_trainable_dtype(adapter.dtype(x))


def _no_strangers(layout: Layout, at: Path, found: Outline, leaves: Sequence[Any]) -> None:
    for path, code, x in zip(found.paths, found.codes, leaves, strict=True):
        whole = (*at, *path)
        if whole in layout.places or whole in layout.untrained:
            continue
        if _is_trainable(x):
            raise StateError(
                f"the state does not belong to this model: the model has {describe(x)} at {code}, "
                "which the state does not know; call setup for this model"
            )
