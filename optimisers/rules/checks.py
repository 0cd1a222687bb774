"""The numbers of a rule, checked when it is made and when it is adjusted."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.numbers import describe
from ..errors import RuleError, RuleTypeError
from .fields import Number, Template, annotation, columns, fields_of, is_dynamic, with_fields

if TYPE_CHECKING:
    from .rule import Rule

BELOW_1, FINITE = math.nextafter(1.0, 0.0), math.nextafter(math.inf, 0.0)
LIMITS: Mapping[str, tuple[float, float]] = {
    "eta": (0.0, FINITE),
    "rho": (0.0, 1.0),
    "beta": (0.0, BELOW_1),
    "epsilon": (0.0, FINITE),
    "lambda_": (0.0, FINITE),
    "delta": (0.0, math.inf),  # clipping at infinity is a way to say: no clipping
    "omega": (0.0, math.inf),
}

# What the same thing is called elsewhere, for the suggestion in an error.
SYNONYMS = {
    "lr": "eta", "learning_rate": "eta", "step_size": "eta", "alpha": "eta", "gamma": "rho",
    "momentum": "rho", "decay": "rho", "betas": "beta", "b1": "beta", "b2": "beta",
    "beta1": "beta", "beta2": "beta", "eps": "epsilon", "weight_decay": "lambda_",
    "lambda": "lambda_", "wd": "lambda_", "max_norm": "omega", "clip": "delta",
}  # fmt: skip


def checked_fields(rule: Rule) -> dict[str, Any]:
    """Return the fields of a fresh rule whose values had to be converted; raise on bad ones."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(rule):
        value = getattr(rule, field.name)
        if is_dynamic(type(rule), field, value):
            checked = _checked(rule, field, value)
        elif annotation(type(rule), field.name) is bool:
            checked = _switch(rule, field.name, value)
        else:
            continue
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


def _switch(rule: Rule, name: str, value: Any) -> bool:
    # Anything else would be taken for true or false by the first `if`, "no" for true.
    if not isinstance(value, bool | np.bool_):
        where = f"{type(rule).__name__}: {name}"
        raise RuleTypeError(f"{where} must be True or False, got {name}={value!r}")
    return bool(value)


def _number(rule: Rule, name: str, value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, jax.Array | np.ndarray):
        if value.ndim or jnp.iscomplexobj(value):
            raise RuleTypeError(f"{where} must be one real number, got {describe(value)}")
        return value  # tracers and JAX arrays pass unread: reading them would block, or fail
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        raise RuleTypeError(f"{where} must be a number, got {value!r}")
    if isinstance(value, complex | np.complexfloating):
        raise RuleTypeError(f"{where} must be a real number, got {value!r}")
    try:
        value = float(value)
    except OverflowError:  # of an int
        value = math.inf if value > 0 else -math.inf
    return _within(rule, name, value, where)


def _within(rule: Rule, name: str, value: float, where: str) -> float:
    low, high, own = _limits(type(rule), name)
    if math.isnan(value) or not low <= value <= high:
        where = f"{type(rule).__name__}: {name}" if own else where
        raise RuleError(f"{where} must be {_range(low, high)}, got {value!r}")
    return value


def _limits(cls: Any, name: str) -> tuple[float, float, bool]:
    """Return the range of a field, or of one number of a tuple (`ell[0]`), and if it is its own."""
    limits = {**LIMITS, **cls.limits}
    whole = limits.get(name.partition("[")[0], (-math.inf, math.inf))
    return *limits.get(name, whole), name in limits


def _range(low: float, high: float) -> str:
    if math.isinf(low):
        return "a number that is not NaN"
    if high >= FINITE:
        return f"{'finite and ' if high == FINITE else ''}at least {low:g}"
    return f"at least {low:g} and {'below 1' if high == BELOW_1 else f'at most {high:g}'}"


def narrowed(template: Template, numbers: Any, dtype: Any) -> Any:
    """Return numbers of rules, their last axis as in `numbers_of`, in the dtype they are kept in.

    Raises:
        RuleError: a number leaves its range on the way, as 1e39 becomes infinity in float32, and
            0.99999999 becomes 1; what it would do so is NaN.
    """
    wide = np.asarray(numbers, np.float64).reshape(np.shape(numbers))
    with np.errstate(over="ignore"):
        table = wide.astype(dtype)
    highs = _highs(template)
    lost = (np.isinf(table) & np.isfinite(wide)) | ((table > highs) & (wide <= highs))
    if lost.any():
        at = tuple(np.argwhere(lost)[0])
        name = "".join(
            f"[{n}]" if isinstance(n, int) else f".{n}" for n in list(columns(template))[at[-1]]
        )
        with np.errstate(over="ignore"):
            most = np.nextafter(highs[at[-1]].astype(dtype), table.dtype.type(0))
        raise RuleError(
            f"{template.cls.__name__}: {name[1:]} must be at most {most!s} for "
            f"parameters whose numbers are kept in {table.dtype}, got {wide[at]!s}"
        )
    return table


@functools.lru_cache(maxsize=512)
def _highs(template: Template) -> Any:
    """Return the upper limits of the numbers of a rule, in the order of `numbers_of`."""
    return np.array([_limits(cls, name)[1] for cls, name in _places(template)])


def _places(template: Template) -> Iterator[tuple[type, str]]:
    for name, part in template.parts:
        if isinstance(part, Template | tuple):
            for child in (part,) if isinstance(part, Template) else part:
                yield from _places(child)
        elif isinstance(part, Number):
            names = [name] if part.length is None else [f"{name}[{i}]" for i in range(part.length)]
            yield from ((template.cls, n) for n in names)


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
