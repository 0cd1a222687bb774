"""The numbers of a rule by name, as they are in force."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
from jax.core import Tracer

from ..errors import StateError
from .fields import fields_of
from .pick import walked
from .rule import Rule, scheduled, schedules_of


def numbers_in_force(rule: Rule, count: Any, dtype: Any) -> dict[str, Any]:
    """Return the hyper-parameters of a rule and of the rules inside it, by name.

    A name that several of them have is written as code below the rule: `rules[0].lambda_`.

    Args:
        rule: the rule.
        count: how many steps were applied, for schedules.
        dtype: of the parameter.
    """
    found = list(_numbers(rule, count, dtype, ""))
    times = Counter(name for name, _, _ in found)
    return {name if times[name] == 1 else where + name: value for name, where, value in found}


def _numbers(rule: Rule, count: Any, dtype: Any, where: str) -> Iterator[tuple[str, str, Any]]:
    now = scheduled(rule, count, dtype)
    for name, value, kind in fields_of(now):
        if kind == "rule":
            yield from _numbers(value, count, dtype, f"{where}{name}.")
        elif kind == "rules":
            for i, child in enumerate(value):
                yield from _numbers(child, count, dtype, f"{where}{name}[{i}].")
        elif kind == "number":
            yield name, where, _plain(value)


def check_pickles(rule: Rule, code: str) -> None:
    """Raise where a schedule or another static part of a rule cannot be pickled; say what can."""
    for part in walked(rule):
        functions = schedules_of(part)
        for name, value, kind in fields_of(part):
            if name not in functions and kind != "static":
                continue
            try:
                pickle.dumps(value)
            except Exception as error:  # noqa: BLE001 - whatever a user's object raises
                what = f"the schedule of {name}" if name in functions else f"its {name}"
                cure = "define it at the top of a module, or " if name in functions else ""
                raise StateError(
                    f"cannot pickle the state of {code}: {what} does not pickle ({error}); "
                    f"{cure}save state_dict(state), which leaves it out"
                ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, jax.Array) and not isinstance(value, Tracer):
        return float(str(value)) if value.dtype == jax.numpy.float32 else float(value)
    return value
