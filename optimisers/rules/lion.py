"""Lion: steps of one size, along the sign of a mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .rule import Rule


@dataclass(frozen=True)
class Lion(Rule):
    """Step by eta along the sign of a mean of momentum and gradient.

    One moment only; eta is usually three to ten times smaller than Adam's.

    Update:
        step $= \\eta\\, \\mathrm{sign}(\\beta_1 m + (1-\\beta_1) g)$

        $m \\leftarrow \\beta_2 m + (1-\\beta_2) g$

    State:
        m: momentum, zeros shaped like x, in [g].

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]; the size of every step.
        beta: weight of the momentum in the step, and its decay, each in [0, 1).

    Raises:
        RuleError: eta negative, beta outside [0, 1).
        DtypeError: in `setup`, a complex parameter, for which signs have no meaning.

    Differs:
        optax.lion agrees. Optimisers.jl 0.4.8 has beta2 and 1 - beta2 swapped in the momentum,
        which is nearly the sign of the gradient alone, and (0.9, 0.999) as default.

    Examples:
        >>> rule = Lion(0.1)
        >>> state, step = rule.apply(rule.init(jnp.array(0.0)), 0.0, 1.0)
        >>> rule.apply(state, 0.0, -0.05)[1]
        Array(0.1, dtype=float32)

    References:
        Chen et al., 2023, algorithm 2, https://arxiv.org/abs/2302.06675
    """

    eta: float = 0.001
    beta: tuple[float, float] = (0.9, 0.99)
    elementwise: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = False

    def init(self, x: Any) -> Any:
        """Return the momentum, zero."""
        return jnp.zeros_like(x)

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next momentum, and the step."""
        m, (beta1, beta2) = state, self.beta
        step = self.eta * jnp.sign(beta1 * m + (1 - beta1) * dx)
        return beta2 * m + (1 - beta2) * dx, step
