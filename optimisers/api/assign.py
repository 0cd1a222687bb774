"""Which rule each parameter gets: one for all, by patterns over paths, or by a function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..arrays.numbers import is_complex
from ..errors import ArgumentError, DtypeError, OptimiserWarning, RuleTypeError, StructureError
from ..rules.pick import walked
from ..rules.rule import Rule, check_schedules
from ..state import Param
from ..tree import Path
from ..tree.select import Where, matcher
from .found import Found

Rules = Rule | Mapping[Any, Rule | None] | Callable[..., Rule | None]


def check_rule(rule: Any, model: Any = None) -> None:
    """Raise where a rule cannot be used: not a rule, a class, or an undecorated subclass."""
    if isinstance(rule, type) and issubclass(rule, Rule):
        raise ArgumentError(f"got the class {rule.__name__}; make a rule of it: {rule.__name__}()")
    if not isinstance(rule, Rule):
        hint = "; setup takes the rule first, then the model" if isinstance(model, Rule) else ""
        if hasattr(rule, "init") and hasattr(rule, "update"):
            hint = "; a transformation of Optax becomes one by from_optax(...)"
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


def check_complex(rule: Rule, param: Param) -> None:
    """Raise where a parameter is complex and its rule has no meaning for that."""
    if not is_complex(param.dtype) or rule.takes_complex:
        return
    part = next((p for p in reversed(walked(rule)) if not p.takes_complex), rule)
    raise DtypeError(
        f"cannot train {param.codes[0]} with {type(part).__name__}: it is "
        f"{param.dtype}{list(param.shape)}, and the rule has no meaning for complex numbers"
    )


def assigned(rules: Any, found: Sequence[Found], model: Any) -> list[Rule | None]:
    """Return the rule of each parameter, None where it is not to be trained.

    Raises:
        ArgumentError: `rules` is no rule, mapping or function; a value of it is no rule.
        StructureError: no pattern matches a parameter; a tied one would get two rules.
        DtypeError: a complex parameter under a rule that has no meaning for it.
    """
    choose = _chooser(rules, found, model)
    chosen = [_one(choose, f) for f in found]
    for rule, f in zip(chosen, found, strict=True):
        if rule is not None:
            check_complex(rule, f.param)
    return chosen


def _one(choose: Callable[[Path, Any], Rule | None], f: Found) -> Rule | None:
    """Return the rule that all places of a parameter agree on."""
    rules = [choose(path, f.x) for path in f.param.paths]
    for rule, code in zip(rules, f.param.codes, strict=True):
        if rule is not rules[0] and rule != rules[0]:
            raise StructureError(
                f"{f.param.codes[0]} and {code} are one parameter, but the rules give it "
                f"{rules[0]!r} and {rule!r}"
            )
    return rules[0]


def _chooser(rules: Any, found: Sequence[Found], model: Any) -> Callable[[Path, Any], Rule | None]:
    if isinstance(rules, Mapping):
        for rule in rules.values():
            if rule is not None:
                check_rule(rule, model)
        return _by_pattern(rules, found)
    if isinstance(rules, Rule | type) or not callable(rules):
        check_rule(rules, model)
        same: Any = rules
        return lambda path, x: same
    return _by_function(rules)


def _by_pattern(
    rules: Mapping[Where, Rule | None], found: Sequence[Found]
) -> Callable[[Path, Any], Rule | None]:
    tests = [(matcher(where), where, rule) for where, rule in rules.items()]
    for fits, where, _ in tests:
        if where != "**" and not any(fits(path, f.x) for f in found for path in f.param.paths):
            warnings.warn(
                f"the pattern {where!r} matches no parameter of the model",
                OptimiserWarning,
                stacklevel=5,
            )
    codes = {
        path: code for f in found for path, code in zip(f.param.paths, f.param.codes, strict=True)
    }

    def choose(path: Path, x: Any) -> Rule | None:
        for fits, _, rule in tests:
            if fits(path, x):
                return rule
        raise StructureError(
            f'no pattern of the rules matches {codes[path]}; add "**" with the rule for the rest '
            "as the last one"
        )

    return choose


def _by_function(function: Any) -> Callable[[Path, Any], Rule | None]:
    def choose(path: Path, x: Any) -> Rule | None:
        rule: Rule | None = function(path, x)
        if rule is not None:
            check_rule(rule)
        return rule

    return choose
