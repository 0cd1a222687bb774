"""One rule among those inside another: picked by its class, or by its place in the chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError, RuleError
from .chain import OptimiserChain
from .fields import annotation, fields_of, with_fields
from .rule import Rule, Wrapper

Pick = type[Rule] | int | None


def picked(rule: Rule, pick: Pick) -> list[Rule]:
    """Return the rules that `pick` means: all of a class, the one at an index, or the rule itself.

    Raises:
        RuleError: there is no rule at the index.
        ArgumentError: `pick` is neither a class of rules nor an index.
    """
    found: list[Rule] = []

    def note(part: Rule) -> Rule:
        found.append(part)
        return part

    with_picked(rule, pick, note)
    return found


def with_picked(rule: Rule, pick: Pick, change: Callable[[Rule], Rule]) -> Any:
    """Return a rule in which the picked ones are changed; none found changes nothing."""
    if pick is None:
        return change(rule)
    if isinstance(pick, type) and issubclass(pick, Rule):
        return _by_class(rule, pick, change)
    if isinstance(pick, int) and not isinstance(pick, bool):
        return _by_index(rule, pick, change)
    raise ArgumentError(
        f"rule= takes the class of a rule in the state or its place in the chain, got {pick!r}; "
        "a rule that replaces another is given in place of eta"
    )


def _by_class(rule: Rule, cls: type[Rule], change: Callable[[Rule], Rule]) -> Any:
    if isinstance(rule, cls):
        return change(rule)
    return with_children(rule, lambda child: _by_class(child, cls, change))


def _by_index(rule: Rule, index: int, change: Callable[[Rule], Rule]) -> Any:
    if not isinstance(rule, OptimiserChain):
        if isinstance(rule, Wrapper):
            return with_children(rule, lambda child: _by_index(child, index, change))
        raise RuleError(f"cannot pick rule {index}: {type(rule).__name__} is not a chain")
    rules = list(rule.rules)
    if not -len(rules) <= index < len(rules):
        raise RuleError(f"cannot pick rule {index}: the chain has {len(rules)} rules")
    rules[index] = change(rules[index])
    return with_fields(rule, {"rules": tuple(rules)})


def walked(rule: Rule) -> list[Rule]:
    """Return a rule and all rules inside it."""
    found = [rule]
    for _, value, kind in fields_of(rule):
        inner = value if kind == "rules" else (value,) if kind == "rule" else ()
        found += [part for child in inner for part in walked(child)]
    return found


def with_whole_numbers(rule: Rule) -> Any:
    """Return a rule whose numbers are ints again where they were, before a table held them."""
    whole = {
        name: int(value)
        for name, value, kind in fields_of(rule)
        if kind == "number" and isinstance(value, float) and annotation(type(rule), name) is int
    }
    rule = with_children(rule, with_whole_numbers)
    return with_fields(rule, whole) if whole else rule


def with_children(rule: Rule, change: Callable[[Any], Rule]) -> Any:
    """Return a rule in which those directly inside it are changed."""
    changes = {
        name: tuple(map(change, value)) if kind == "rules" else change(value)
        for name, value, kind in fields_of(rule)
        if kind in ("rule", "rules")
    }
    return with_fields(rule, changes) if changes else rule
