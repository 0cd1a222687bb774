"""SkipNonFinite: leave out a step in which a gradient is not finite."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .rule import Flow, Rule, Wrapper, both, hold, restart, start


@dataclass(frozen=True)
class SkipNonFinite(Wrapper):
    """Run a rule, except where any gradient is infinite or NaN: then nothing moves at all.

    Around everything else. It looks at the raw total gradients of all parameters of a state whose
    rule it wraps: one bad number holds all of them back, parameters, moments and counters, as if
    the call had not been made. No such number ever enters a parameter or a state.

    Update:
        if every element of every gradient is finite: the rule's; else nothing but $n \\leftarrow
        n + 1$

    State:
        n: how many steps were left out, 0, a scalar.
        rule: the state of the rule.

    Args:
        rule: the rule, or chain, or `MixedPrecision`, that runs.

    Raises:
        RuleTypeError: rule is not a rule, or a SkipNonFinite.

    Differs:
        optax.apply_if_finite gives up after a number of bad steps in a row; this never does.
        Optimisers.jl has no such rule.

    Examples:
        >>> from optimisers.rules import Momentum
        >>> rule = SkipNonFinite(Momentum(0.1))
        >>> state, step = rule.apply(rule.init(jnp.zeros(2)), jnp.zeros(2), jnp.array([1, jnp.nan]))
        >>> print(state[0], state[1], step.run)
        1 [0. 0.] False

    References:
        Micikevicius et al., 2018, section 3.2, https://arxiv.org/abs/1710.03740
    """

    rule: Rule
    outside: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self.check_inside(self.rule)

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        """Whether the rule inside is elementwise."""
        return self.rule.elementwise

    @property
    def takes_complex(self) -> bool:  # type: ignore[override]
        """Whether the rule inside has a meaning for complex numbers."""
        return self.rule.takes_complex

    def init(self, x: Any) -> Any:
        """Return a count of no steps left out, and the state of the rule."""
        return jnp.zeros((), jnp.int32), start(self.rule, x)

    def adjust_state(self, old: Any, state: Any) -> Any:
        """Return the count as it was, and the state of the rule after its adjustment."""
        return state[0], restart(self.rule, old.rule, state[1])

    def advance(self, state: Any, x: Any, flow: Flow) -> tuple[Any, Flow]:
        """Run the rule, and keep everything as it was where a gradient is not finite."""
        skips, inner = state
        across = flow.across.under(SkipNonFinite.__qualname__, flow.run)
        finite = functools.reduce(jnp.logical_and, map(jnp.isfinite, (flow.dx, *flow.higher)))
        ok = across.model(finite.astype(flow.dx.real.dtype), "min") > 0
        # Zeros in place of what is not finite: a derivative would multiply it by 0, which is NaN.
        clean = [jnp.where(ok, g, 0) for g in (flow.dx, *flow.higher)]
        new, out = self.rule.advance(inner, x, flow._replace(dx=clean[0], higher=tuple(clean[1:])))
        skips = hold(flow.run, jnp.where(ok, skips, skips + 1), skips)
        return (skips, hold(ok, new, inner)), out._replace(run=both(out.run, ok))
