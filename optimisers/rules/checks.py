"""The numbers of a rule, checked when it is made and when it is adjusted."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..errors import RuleError, RuleTypeError
from .fields import fields_of, is_dynamic, with_fields

if TYPE_CHECKING:
    from .rule import Rule

LIMITS: Mapping[str, tuple[float, float]] = {
    "eta": (0.0, math.inf),
    "rho": (0.0, 1.0),
    "beta": (0.0, math.nextafter(1.0, 0.0)),
    "epsilon": (0.0, math.inf),
    "lambda_": (0.0, math.inf),
    "delta": (0.0, math.inf),
    "omega": (0.0, math.inf),
}
BOUNDLESS = frozenset({"delta", "omega"})  # clipping at infinity is a way to say: no clipping

# What the same thing is called elsewhere, for the suggestion in an error.
SYNONYMS = {
    "lr": "eta", "learning_rate": "eta", "step_size": "eta", "alpha": "eta", "gamma": "rho",
    "momentum": "rho", "decay": "rho", "betas": "beta", "b1": "beta", "b2": "beta",
    "beta1": "beta", "beta2": "beta", "eps": "epsilon", "weight_decay": "lambda_",
    "lambda": "lambda_", "wd": "lambda_", "max_norm": "omega", "clip": "delta",
}  # fmt: skip


def checked_fields(rule: Rule) -> dict[str, Any]:
    """Return the fields of a fresh rule whose values had to be made floats; raise on bad ones."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(rule):
        value = getattr(rule, field.name)
        if not is_dynamic(type(rule), field, value):
            continue
        checked = _checked(rule, field, value)
        if checked is not value:
            found[field.name] = checked
    return found


def _checked(rule: Rule, field: dataclasses.Field[Any], value: Any) -> Any:
    default, where = field.default, f"{type(rule).__name__}: {field.name}"
    if isinstance(default, tuple):
        if callable(value):
            raise RuleTypeError(f"{where} is a tuple of numbers and cannot be a schedule")
        try:
            value = tuple(value)
        except TypeError:
            raise RuleTypeError(f"{where} takes {len(default)} numbers, got {value!r}") from None
        if len(value) != len(default):
            raise RuleError(f"{where} takes {len(default)} numbers, got {len(value)}")
        return tuple(_number(rule, f"{field.name}[{i}]", v, where) for i, v in enumerate(value))
    return value if callable(value) else _number(rule, field.name, value, where)


def _number(rule: Rule, name: str, value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, jax.Array | np.ndarray):
        return value  # tracers and arrays pass unchecked: reading them would block, or fail
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        raise RuleTypeError(f"{where} must be a number, got {value!r}")
    if isinstance(value, complex | np.complexfloating):
        raise RuleTypeError(f"{where} must be a real number, got {value!r}")
    return _within(rule, name, float(value), where)


def _within(rule: Rule, name: str, value: float, where: str) -> float:
    limits = {**LIMITS, **rule.limits}
    if name in limits:  # limits of one number of a tuple, as "ell[0]"
        where = f"{type(rule).__name__}: {name}"
    else:
        name = name.partition("[")[0]
    low, high = limits.get(name, (-math.inf, math.inf))
    endless = math.isinf(value) and name in LIMITS and name not in BOUNDLESS
    if math.isnan(value) or endless or not low <= value <= high:
        raise RuleError(f"{where} must be {_range(low, high)}, got {value!r}")
    return value


def _range(low: float, high: float) -> str:
    if math.isinf(low):
        return "a number that is not NaN"
    if math.isinf(high):
        return f"finite and at least {low:g}" if low == 0 else f"at least {low:g}"
    upper = "below 1" if high < 1 < math.nextafter(high, 2) + 1e-9 else f"at most {high:g}"
    return f"at least {low:g} and {upper}"


def names_of(rule: Rule) -> set[str]:
    """Return the names of all fields that can be adjusted, those of the rules inside included."""
    names: set[str] = set()
    for name, value, kind in fields_of(rule):
        if kind == "rule":
            names |= names_of(value)
        elif kind == "rules":
            names = names.union(*map(names_of, value))
        else:
            names.add(name)
    return names


def unknown_field(names: Iterable[str], rules: Iterable[Rule], known: Iterable[str]) -> RuleError:
    """Return the error for fields that none of some rules has, with the nearest there is."""
    rules = list(rules)
    rule = " and ".join(sorted({type(r).__name__ for r in rules}))
    name, known = sorted(names)[0], sorted(known)
    near = difflib.get_close_matches(name, known, 1) or [SYNONYMS.get(name, "")]
    hint = f"; did you mean {near[0]!r}?" if near[0] in known else ""
    hint = hint or next((f"; {r.advice}" for r in rules if r.advice), "")
    return RuleError(f"cannot adjust {name!r}: {rule} has {', '.join(known) or 'no fields'}{hint}")


def adjusted(rule: Rule, fields: Mapping[str, Any]) -> Any:
    """Return a rule with new values in itself and in the rules inside it that have such fields."""
    known = names_of(rule)
    if unknown := set(fields) - known:
        raise unknown_field(unknown, [rule], known)
    changes: dict[str, Any] = {}
    for name, value, kind in fields_of(rule):
        if kind == "rule":
            changes[name] = _adjust_child(value, fields)
        elif kind == "rules":
            changes[name] = tuple(_adjust_child(child, fields) for child in value)
        elif name in fields:
            if callable(value) and not callable(fields[name]):
                raise RuleError(
                    f"cannot set {name} of {type(rule).__name__} to a number: it follows a "
                    f"schedule; adjust it to another function, or replace the rule"
                )
            changes[name] = fields[name]
    return _replaced(rule, changes)


def _adjust_child(child: Rule, fields: Mapping[str, Any]) -> Any:
    own = {name: value for name, value in fields.items() if name in names_of(child)}
    return child.adjust(**own) if own else child


def _replaced(rule: Rule, changes: Mapping[str, Any]) -> Any:
    new = with_fields(rule, changes)
    new.__post_init__()
    return new
