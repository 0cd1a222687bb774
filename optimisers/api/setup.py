"""setup: the first state for a model and its rules."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import describe
from ..arrays.ops import copied, is_traced_type
from ..arrays.sharding import place_of
from ..errors import OptimiserWarning
from ..rules.fields import same_kind, template_of
from ..rules.rule import Rule
from ..state import State
from ..state.build import first_arrays, grouped, hyper_table
from ..state.layout import Place, interned
from ..state.relayout import Kept, carried_at, relaid
from ..state.state import Box, checked
from ..tree import Outline, flatten, outline
from .assign import Rules, assigned
from .found import Found, Ties, parameters, warn_of_nothing


def setup(rule: Rules, model: Any, *, ties: Ties = None, keep: State | None = None) -> State:
    """Return the state with which `update` trains a model by a rule, or by rules.

    The model is not changed.

    Args:
        rule: what to do with each parameter's gradient, for instance `Adam(1e-3)`. Or a mapping
            from pattern to rule, of which the first match counts: `{"**/bias": Descent(0.1), "**":
            AdamW()}`; patterns are those of `freeze`. Or a function `(path, x) -> rule`, with the
            path as a tuple of keys and the array. Where it gives None, nothing is trained.
        model: any nest of dicts, lists, tuples, named tuples, registered classes, Equinox modules;
            floating and complex arrays in it are trained, everything else is left alone.
        ties: which places are one parameter. None: those that hold one array object (for torch and
            NumPy: the same elements of the same memory). Otherwise just those said here, as groups
            of paths (`[("enc/w", "dec/w")]`, `()` for none), or those of another state.
        keep: a state whose moments, counts and frozen flags are taken over for each parameter that
            has the path, shape, dtype and kind of rule which it had there. Numbers, such as a
            learning rate, are those of the new rules.

    Returns:
        The state, nested like the model when it is looked at.

    Raises:
        ArgumentError: the rule is not a rule, or the arguments are swapped.
        RuleTypeError: the rule's class is not a dataclass, its `init` returns what it may not, or
            its schedule cannot be compiled.
        StructureError: no pattern matches a parameter; places that are tied have two rules, or are
            not equal.
        DtypeError: a parameter whose dtype JAX or the rule has no meaning for.
        DeviceError: a tensor on a device that JAX does not share.
        StateError: a deleted array: its memory was given to an update.

    Warns:
        OptimiserWarning: nothing is trainable; an unregistered object holds arrays; a floating
            NumPy scalar, which cannot be trained; a pattern that matches nothing; nothing to keep.

    Examples:
        >>> state = setup(Descent(0.1), {"w": np.ones(3)})
        >>> state["w"].rule
        Descent(eta=0.1)
        >>> def decayed(path, x):
        ...     return AdamW(lambda_=0.1 if x.ndim >= 2 else 0.0)
        >>> setup(decayed, {"w": np.ones((3, 2)), "b": np.ones(3)})["w"].rule.lambda_
        0.1
    """
    leaves, _ = flatten(model)
    places = outline(model)
    found, untrained = parameters(places, leaves, ties)
    rules = assigned(rule, found, model)
    left = {path for f, r in zip(found, rules, strict=True) if r is None for path in f.param.paths}
    pairs = [(f, r) for f, r in zip(found, rules, strict=True) if r is not None]
    if not pairs:
        warn_of_nothing()
    state = _assembled(
        [f for f, _ in pairs], [r for _, r in pairs], untrained | left, _skeleton(places, leaves)
    )
    return state if keep is None else _kept(state, checked(keep))


def _assembled(
    found: Sequence[Found], rules: Sequence[Rule], untrained: frozenset[Any], skeleton: Any
) -> State:
    """Make the state of parameters of which each has its rule."""
    params = [f.param for f in found]
    weak = [bool(getattr(f.x, "weak_type", False)) for f in found]
    hosts = [f.adapter.host for f in found]
    units = grouped(params, rules, weak, hosts, _placed(found))
    arrays = []
    for unit in units:
        xs = tuple(_view(found[i], unit.spec.packed) for i in unit.params)
        hyper = hyper_table(unit, rules)
        traced = any(is_traced_type(type(a)) for a in (*xs, hyper))
        arrays.append(first_arrays(unit, hyper, xs, traced))
    return State(Box(interned(tuple(params), units, untrained, skeleton), arrays))


def _kept(state: State, old: State) -> State:
    """Return a fresh state with what another one holds for the same parameters."""
    box, (layout, arrays) = state._box, (old._box.layout, old._box.arrays)
    changes, frozen = {}, {}
    for i, param in enumerate(box.layout.params):
        j = next((layout.places[path][0] for path in param.paths if path in layout.places), None)
        if j is None:
            continue
        was = layout.params[j]
        u, k = layout.where(j)
        rule = box.rule(i)
        same = same_kind(layout.units[u].spec.template, template_of(rule))
        if same and (was.shape, was.dtype) == (param.shape, param.dtype):
            changes[i] = Kept(rule, *carried_at(layout.units[u], arrays[u], k))
            frozen[i] = was.frozen
    if not changes and box.layout.params:
        warnings.warn(
            "nothing is kept: no parameter has its path, shape, dtype and rule in the old state",
            OptimiserWarning,
            stacklevel=3,
        )
    new, held = relaid(box.layout, box.arrays, changes)
    return State(Box(new.with_frozen(frozen), held))


def _view(found: Found, packed: bool) -> Any:
    view = found.adapter.view(found.x)
    # JAX may read the memory later than it says, and a rule's state may be a copy of the parameter.
    return copied(view) if isinstance(view, np.ndarray) else view


def _placed(found: Sequence[Found]) -> list[Place]:
    """Number the devices and shardings of parameters; only those that share one share a program."""
    numbers: dict[Any, int] = {}
    places = []
    for f in found:
        where, sharded = place_of(f.x)
        places.append(Place(numbers.setdefault(where, len(numbers)), sharded))
    return places


def _skeleton(places: Outline, leaves: Sequence[Any]) -> Any:
    return tuple(
        (path, what if isinstance(what, str) else describe(leaves[what]))
        for path, what in places.preorder()
    )
