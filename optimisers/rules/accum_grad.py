"""AccumGrad: one step for several gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from ..errors import RuleError
from .fields import dynamic_field
from .rule import Rule, Step


@dataclass(frozen=True)
class AccumGrad(Rule):
    """Gather n gradients and pass on their mean; in between, nothing after it in a chain moves.

    For batches that do not fit into memory: the rules after it see one gradient of the whole batch,
    and schedules, decay and moments count real steps. All parameters count the same calls; one that
    was frozen for some of them counts its own, so freeze and thaw after a step.

    Update:
        $s \\leftarrow s + g$ (without a gradient: $s \\leftarrow s$)

        $c \\leftarrow c + 1$

        if $c \\ge n$: step $= s / c$, then $s \\leftarrow 0$, $c \\leftarrow 0$; else the rules
        after it do not run

    State:
        s: sum of gradients, zeros shaped like x, in [g].
        c: calls summed so far, 0, a scalar.
        seen: whether one of them had a gradient here, 0 or 1, a scalar.

    Args:
        n: how many gradients make a step, a whole number of at least 1. It can be adjusted at any
            time; where c has already reached the new n, the next call makes a step.

    Raises:
        RuleError: n is not a whole number of at least 1.

    Differs:
        From Optimisers.jl 0.4.8: a missing gradient (None) counts as zero rather than not at all, a
        parameter without any of its n gradients stands still, and the mean is of the gradients
        summed also after n was lowered. optax.MultiSteps does the same around a whole optimiser.

    Examples:
        >>> rule = AccumGrad(2)
        >>> state, step = rule.apply(rule.init(jnp.zeros(2)), 0.0, jnp.array([3.0, 0.0]))
        >>> rule.apply(state, 0.0, jnp.array([5.0, 1.0]))[1].dx
        Array([4. , 0.5], dtype=float32)

    References:
        Optimisers.jl 0.4.8, `AccumGrad`, https://fluxml.ai/Optimisers.jl
    """

    n: int = dynamic_field()
    elementwise: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {"n": (1.0, float("inf"))}

    def __post_init__(self) -> None:
        super().__post_init__()
        n: Any = self.n
        if isinstance(n, float):
            if not n.is_integer():
                raise RuleError(f"AccumGrad: n must be a whole number, got {n!r}")
            object.__setattr__(self, "n", int(n))

    def init(self, x: Any) -> Any:
        """Return an empty sum of no calls."""
        return jnp.zeros_like(x), 0.0, 0.0

    def apply(self, state: Any, x: Any, dx: Any, *, present: Any = True) -> tuple[Any, Any]:
        """Return the next sum and counts, and the mean where enough gradients are in."""
        total, calls, seen = state
        total, calls = total + jnp.where(present, dx, 0), calls + 1.0
        seen = jnp.where(present, 1.0, seen)
        full = calls >= self.n
        run = jnp.logical_and(full, seen > 0)
        # Zeros where the rules after it do not run: a sum that is not finite is no error yet.
        step = Step(jnp.where(run, total / calls, 0), run, turn=full)
        return tuple(jnp.where(full, 0, part) for part in (total, calls, seen)), step
