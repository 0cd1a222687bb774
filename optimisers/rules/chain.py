"""OptimiserChain: rules one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .rule import Flow, Rule, Wrapper, restart, start


@dataclass(frozen=True, init=False, repr=False)
class OptimiserChain(Wrapper):
    """Apply rules one after another, each to the step of the one before.

    Update:
        $\\Delta_0 = g$, $\\Delta_i = \\text{rule}_i(\\Delta_{i-1})$; the last
        $\\Delta$ is subtracted. An empty chain is the identity, which is `Descent(1)`.

    State:
        A tuple: the state of each rule.

    Args:
        *rules: the rules, first to last; chains nest.

    Raises:
        RuleTypeError: an argument that is not a rule, or one that only goes around a whole chain
            (`MixedPrecision`, `SkipNonFinite`).

    Differs:
        Optimisers.jl calls the field `opts`, by which it can be read here too; Optax calls the
        function `chain`, and its modifiers work on the negative step.

    Examples:
        >>> from optimisers.rules import ClipGrad, Descent
        >>> OptimiserChain(ClipGrad(2.0), Descent(0.1)).apply(((), ()), 1.0, 5.0)[1]
        Array(0.2, dtype=float32)

    References:
        Optimisers.jl 0.4.8, `OptimiserChain`, https://fluxml.ai/Optimisers.jl
    """

    rules: tuple[Rule, ...] = ()

    def __init__(self, *rules: Rule) -> None:
        for rule in rules:
            self.check_inside(rule)
        object.__setattr__(self, "rules", tuple(rules))

    def __repr__(self) -> str:
        return f"OptimiserChain({', '.join(map(repr, self.rules))})"

    @property
    def opts(self) -> tuple[Rule, ...]:
        """The rules, by the name that they have in Optimisers.jl."""
        return self.rules

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        """Whether every rule inside is elementwise."""
        return all(rule.elementwise for rule in self.rules)

    @property
    def takes_complex(self) -> bool:  # type: ignore[override]
        """Whether every rule inside has a meaning for complex numbers."""
        return all(rule.takes_complex for rule in self.rules)

    def init(self, x: Any) -> Any:
        """Return the states of the rules, as a tuple."""
        return tuple(start(rule, x) for rule in self.rules)

    def adjust_state(self, old: Any, state: Any) -> Any:
        """Return the states of the rules, each after its own adjustment."""
        return tuple(map(restart, self.rules, old.rules, state))

    def advance(self, state: Any, x: Any, flow: Flow) -> tuple[Any, Flow]:
        """Pass the flow through each rule in turn."""
        states = []
        for rule, old in zip(self.rules, state, strict=True):
            new, flow = rule.advance(old, x, flow)
            states.append(new)
        return tuple(states), flow
