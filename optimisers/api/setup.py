"""setup: the first state for a rule and a model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..arrays import Adapter, adapter_of, describe
from ..arrays.numbers import is_complex, is_trainable_dtype
from ..arrays.ops import copied, is_traced_type
from ..errors import ArgumentError, DtypeError, OptimiserWarning, RuleTypeError
from ..rules.pick import walked
from ..rules.rule import Rule, check_schedules
from ..state import Param, State
from ..state.build import check_dtype, first_arrays, grouped, hyper_tables
from ..state.layout import Place, interned
from ..state.state import Box
from ..tree import Outline, flatten, outline


class Found(NamedTuple):
    """One parameter of a model, as `setup` finds it."""

    param: Param
    x: Any
    adapter: Adapter


def setup(rule: Rule, model: Any) -> State:
    """Return the state with which `update` trains a model by a rule.

    The model is not changed. Arrays that are one object (for torch and NumPy: the same elements of
    the same memory) are tied: one parameter at several places.

    Args:
        rule: what to do with each parameter's gradient, for instance `Adam(1e-3)`.
        model: any nest of dicts, lists, tuples, named tuples, registered classes, Equinox modules;
            floating and complex arrays in it are trained, everything else is left alone.

    Returns:
        The state, nested like the model when it is looked at.

    Raises:
        ArgumentError: the rule is not a rule, or the arguments are swapped.
        RuleTypeError: the rule's class is not a dataclass, or its `init` returns what it may not.
        DtypeError: a parameter whose dtype JAX or the rule has no meaning for.
        DeviceError: a tensor on a device that JAX does not share.

    Warns:
        OptimiserWarning: nothing is trainable; an unregistered object holds arrays; a floating
            NumPy scalar, which cannot be trained.

    Examples:
        >>> state = setup(Descent(0.1), {"w": np.ones(3)})
        >>> state["w"].rule
        Descent(eta=0.1)
    """
    check_rule(rule, model)
    leaves, _ = flatten(model)
    places = outline(model)
    found, untrained = parameters(places, leaves)
    rules = [rule] * len(found)
    return _assembled(found, rules, untrained, _skeleton(places, leaves))


def check_rule(rule: Any, model: Any) -> None:
    """Raise where a rule cannot be used: not a rule, a class, or an undecorated subclass."""
    if isinstance(rule, type) and issubclass(rule, Rule):
        raise ArgumentError(f"got the class {rule.__name__}; make a rule of it: {rule.__name__}()")
    if not isinstance(rule, Rule):
        hint = "; setup takes the rule first, then the model" if isinstance(model, Rule) else ""
        raise ArgumentError(f"cannot use {type(rule).__name__} as a rule{hint}")
    for part in walked(rule):
        cls = type(part)
        made = cls.__dict__.get("__dataclass_params__")
        if made is None or not made.frozen:
            raise RuleTypeError(
                f"the class {cls.__name__} is not a frozen dataclass of its own; "
                "write @dataclass(frozen=True) above it"
            )
        check_schedules(part)


def parameters(places: Outline, leaves: Sequence[Any]) -> tuple[list[Found], frozenset[Any]]:
    """Find the parameters among the leaves of a model, ties by identity; and what is left alone."""
    groups: dict[Any, list[int]] = {}
    untrained = set()
    for i, x in enumerate(leaves):
        adapter = adapter_of(type(x))
        if adapter is None:
            _warn_about(x, places.codes[i])
        elif is_trainable_dtype(adapter.dtype(x)):
            if i in places.left or not adapter.is_parameter(x):
                untrained.add(places.paths[i])
            else:
                groups.setdefault(adapter.identity(x), []).append(i)
    found = [_found(places, leaves, indices) for indices in groups.values()]
    if not found:
        warnings.warn(
            "nothing in the model is trainable: it holds no floating array that is reached; "
            "make numbers arrays with np.asarray(x, float), and register classes with "
            "optimisers.register(cls)",
            OptimiserWarning,
            stacklevel=3,
        )
    return found, frozenset(untrained)


def _found(places: Outline, leaves: Sequence[Any], indices: Sequence[int]) -> Found:
    x = leaves[indices[0]]
    adapter = adapter_of(type(x))
    assert adapter is not None
    adapter.check(x, places.codes[indices[0]])
    dtype = adapter.dtype(x)
    check_dtype(dtype, places.codes[indices[0]])
    param = Param(
        tuple(places.paths[i] for i in indices),
        tuple(places.codes[i] for i in indices),
        tuple(int(n) for n in x.shape),
        str(dtype),
        adapter.name,
    )
    return Found(param, x, adapter)


def _warn_about(x: Any, code: str) -> None:
    if isinstance(x, np.inexact) or type(x).__name__ == "bfloat16":
        warnings.warn(
            f"{code} is a NumPy scalar, which is not trained; make it an array with np.asarray(x)",
            OptimiserWarning,
            stacklevel=4,
        )
    elif _holds_arrays(x):
        warnings.warn(
            f"{code} is a {type(x).__name__} that holds arrays, which are not trained; "
            f"register its class with optimisers.register({type(x).__name__})",
            OptimiserWarning,
            stacklevel=4,
        )


def _holds_arrays(x: Any) -> bool:
    if isinstance(x, type) or callable(x) and not hasattr(x, "__dict__"):
        return False
    inside = dict(x) if isinstance(x, dict) else getattr(x, "__dict__", None)
    if not inside:
        return False
    return any(
        (adapter := adapter_of(type(leaf))) is not None and is_trainable_dtype(adapter.dtype(leaf))
        for leaf in flatten(dict(inside))[0]
    )


def _check_complex(rule: Rule, param: Param) -> None:
    if not is_complex(param.dtype) or rule.takes_complex:
        return
    part = next((p for p in reversed(walked(rule)) if not p.takes_complex), rule)
    raise DtypeError(
        f"cannot train {param.codes[0]} with {type(part).__name__}: it is "
        f"{param.dtype}{list(param.shape)}, and the rule has no meaning for complex numbers"
    )


def _assembled(
    found: Sequence[Found], rules: Sequence[Rule], untrained: frozenset[Any], skeleton: Any
) -> State:
    """Make the state of parameters of which each has its rule."""
    params = [f.param for f in found]
    for rule, param in zip(rules, params, strict=True):
        _check_complex(rule, param)
    weak = [bool(getattr(f.x, "weak_type", False)) for f in found]
    hosts = [f.adapter.host for f in found]
    units = grouped(params, rules, weak, hosts, _placed(found))
    arrays = []
    for unit in units:
        xs = tuple(_view(found[i], unit.spec.packed) for i in unit.params)
        hypers = hyper_tables(unit, rules)
        traced = any(is_traced_type(type(a)) for a in (*xs, *hypers))
        arrays.append(first_arrays(unit, hypers, xs, traced))
    return State(Box(interned(tuple(params), units, untrained, skeleton), arrays))


def _view(found: Found, packed: bool) -> Any:
    view = found.adapter.view(found.x)
    # JAX may read the memory later than it says, and a rule's state may be a copy of the parameter.
    return copied(view) if isinstance(view, np.ndarray) else view


def _placed(found: Sequence[Found]) -> list[Place]:
    """Number the devices and shardings of parameters; only those that share one share a program."""
    numbers: dict[Any, int] = {}
    places = []
    for f in found:
        where, sharded = _where(f.x)
        places.append(Place(numbers.setdefault(where, len(numbers)), sharded))
    return places


def _where(x: Any) -> tuple[Any, bool]:
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return None, False
    sharding: Any = x.sharding
    if len(sharding.device_set) == 1:
        return next(iter(sharding.device_set)).id, False
    return sharding, not sharding.is_fully_replicated


def _skeleton(places: Outline, leaves: Sequence[Any]) -> Any:
    return tuple(
        (path, what if isinstance(what, str) else describe(leaves[what]))
        for path, what in places.preorder()
    )
