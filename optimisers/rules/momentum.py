"""Momentum: gradient descent with a velocity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .rule import Rule


@dataclass(frozen=True)
class Momentum(Rule):
    """Step along a velocity that the gradient accelerates.

    Update:
        $v \\leftarrow \\rho v + \\eta g$

        step $= v$

    State:
        v: velocity, zeros shaped like x, in [x].

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]/[g].
        rho: how much of the velocity is kept in each step, $0 \\le \\rho \\le 1$.

    Raises:
        RuleError: eta negative, infinite or NaN; rho outside [0, 1].

    Differs:
        As in Optimisers.jl, eta is folded into the velocity, so that after `adjust(eta=0)` the
        parameter still moves; torch.optim.SGD(momentum=rho) and optax.sgd multiply by eta
        afterwards, which is the same as long as eta does not change.

    Examples:
        >>> Momentum(0.1, 0.9).apply(jnp.array(1.0), 0.0, 2.0)[1]
        Array(1.1, dtype=float32)

    References:
        Polyak, 1964, equation 9, https://doi.org/10.1016/0041-5553(64)90137-5
    """

    eta: float = 0.01
    rho: float = 0.9
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return the velocity, zero."""
        return jnp.zeros_like(x)

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next velocity, which is also the step."""
        v = self.rho * state + self.eta * dx
        return v, v
