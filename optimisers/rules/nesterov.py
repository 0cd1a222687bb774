"""Nesterov: momentum that looks ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .rule import Rule


@dataclass(frozen=True)
class Nesterov(Rule):
    """Step along a velocity, as if the gradient had been taken where it leads.

    Update:
        step $= (1+\\rho)\\, \\eta g - \\rho^2 v$

        $v \\leftarrow \\rho v - \\eta g$

    State:
        v: velocity, zeros shaped like x, in [x]; it points the way x moves.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]/[g].
        rho: how much of the velocity is kept in each step, $0 \\le \\rho \\le 1$.

    Raises:
        RuleError: eta negative, infinite or NaN; rho outside [0, 1].

    Differs:
        As in Optimisers.jl, eta is folded into the velocity, so that after `adjust(eta=0)` the
        parameter still moves; torch.optim.SGD(nesterov=True) and optax.sgd multiply by eta
        afterwards, which is the same as long as eta does not change.

    Examples:
        >>> Nesterov(0.1, 0.5).apply(jnp.array(-4.0), 0.0, 2.0)[1].round(6)
        Array(1.3, dtype=float32)

    References:
        Bengio, Boulanger-Lewandowski and Pascanu, 2013, section 3.5,
        https://arxiv.org/abs/1212.0901
    """

    eta: float = 0.001
    rho: float = 0.9
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return the velocity, zero."""
        return jnp.zeros_like(x)

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next velocity, and the step."""
        v, (eta, rho) = state, (self.eta, self.rho)
        step = (1 + rho) * eta * dx - rho * rho * v
        return rho * v - eta * dx, step
