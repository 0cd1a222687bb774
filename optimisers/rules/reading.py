"""The numbers of a rule by name, as they are in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

from .fields import fields_of
from .rule import Rule, scheduled


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


def _plain(value: Any) -> Any:
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        return float(str(value)) if value.dtype == jax.numpy.float32 else float(value)
    return value
