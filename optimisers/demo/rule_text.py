"""Rules as text: read from the command line, and listed."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import math
from typing import Any

import optimisers
from optimisers import Rule
from optimisers.errors import RuleError

# What a bare name means: the fields that differ from the rule's defaults, which are made for long
# runs, while these suit a thousand steps on the digits.
FOR_DIGITS: dict[str, dict[str, Any]] = {
    "Descent": {"eta": 0.5},
    "Momentum": {"eta": 0.05},
    "Nesterov": {"eta": 0.05},
    "Rprop": {"eta": 0.001},
    "RMSProp": {"eta": 0.003},
    "Adam": {"eta": 0.01},
    "AdamW": {"eta": 0.01, "lambda_": 0.01},
    "RAdam": {"eta": 0.01},
    "AdaMax": {"eta": 0.01},
    "OAdam": {"eta": 0.003},
    "AdaGrad": {"eta": 0.05},
    "AdaDelta": {"epsilon": 1e-5},
    "AMSGrad": {"eta": 0.01},
    "NAdam": {"eta": 0.01},
    "AdaBelief": {"eta": 0.01},
    "Lion": {"eta": 0.001},
}


def rule_classes() -> dict[str, type[Rule]]:
    """Return the rules that the package exports, by name; their base classes are not among them."""
    exported = {name: getattr(optimisers, name) for name in dir(optimisers)}
    return {
        name: value
        for name, value in exported.items()
        if isinstance(value, type) and issubclass(value, Rule) and dataclasses.is_dataclass(value)
    }


def catalogue() -> str:
    """Return every rule with its defaults and, below, what it does in one line."""
    entries = []
    for name, cls in rule_classes().items():
        does = inspect.getdoc(cls) or ""
        first, _, _ = does.partition("\n\n")
        entries.append(f"{signature(name, cls)}\n    {' '.join(first.split())}")
    return "\n".join(entries)


def signature(name: str, cls: type[Rule]) -> str:
    """Write how a rule is made, with its defaults and without types."""
    return f"{name}({', '.join(map(_argument, inspect.signature(cls).parameters.values()))})"


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    default = parameter.default
    if default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={getattr(default, '__name__', None) or repr(default)}"


def parse_rule(text: str) -> Rule:
    """Read a rule written as the call that makes it; nothing but rules and literals is evaluated.

    Raises:
        RuleError: text that is not such a call, a name that is no rule, values that the rule
            refuses.
    """
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RuleError(f"cannot read {text!r}; expected a call like Momentum(0.05)") from None
    rule = _evaluate(expression)
    if not isinstance(rule, Rule):
        raise RuleError(f"{text!r} is not a rule; expected a call like Momentum(0.05)")
    return rule


def _evaluate(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Tuple() | ast.List():
            return tuple(map(_evaluate, node.elts))
        case ast.UnaryOp(op=ast.USub(), operand=ast.expr() as operand):
            value = _evaluate(operand)
            if isinstance(value, int | float):
                return -value
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id="float32" | "float64" as dtype):
            return dtype
        case ast.Name(id=name):
            return _make(name, (), FOR_DIGITS.get(name, {}))
        case ast.Call(func=ast.Name(id=name)) if all(word.arg for word in node.keywords):
            words = {str(word.arg): _evaluate(word.value) for word in node.keywords}
            return _make(name, tuple(map(_evaluate, node.args)), words)
    raise RuleError(f"cannot read {ast.unparse(node)!r} in a rule; expected rules and numbers")


def _make(name: str, args: tuple[Any, ...], words: dict[str, Any]) -> Rule:
    rules = rule_classes()
    if name not in rules:
        near = difflib.get_close_matches(name, rules, 1)
        hint = f"did you mean {near[0]}?" if near else "`python -m optimisers rules` lists them"
        raise RuleError(f"there is no rule {name}; {hint}")
    try:
        return rules[name](*args, **words)
    except (TypeError, ValueError) as error:
        raise RuleError(f"{error}; it is made as {signature(name, rules[name])}") from None
