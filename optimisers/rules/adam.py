"""Adam: steps scaled by running moments of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class Adam(Rule):
    """Step along the mean gradient, divided by the root of its mean square.

    Update:
        $m \\leftarrow \\beta_1 m + (1-\\beta_1) g$

        $v \\leftarrow \\beta_2 v + (1-\\beta_2) |g|^2$

        step $= \\eta\\, (m / (1-b_1)) / (\\sqrt{v / (1-b_2)} + \\epsilon)$

        $b \\leftarrow b \\beta$ (running products, so that the correction stays exact when beta is
        adjusted)

    State:
        m: first moment, zeros shaped like x, in [g].
        v: second moment, zeros shaped like x, real, in [g]^2.
        b: the products $(\\beta_1^t, \\beta_2^t)$, starting at beta, two scalars.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]; about the size of a step.
        beta: decay of the two moments, each in [0, 1).
        epsilon: added to the root, in [g].

    Raises:
        RuleError: eta or epsilon negative, beta outside [0, 1).

    Differs:
        torch.optim.Adam and optax.adam agree to rounding.

    Examples:
        >>> rule = Adam(0.1)
        >>> rule.apply(rule.init(jnp.array(1.0)), 1.0, 5.0)[1].round(6)
        Array(0.1, dtype=float32)

    References:
        Kingma and Ba, 2015, algorithm 1, https://arxiv.org/abs/1412.6980
    """

    eta: float = 0.001
    beta: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return zero moments and the first products of beta."""
        return jnp.zeros_like(x), real_zeros_like(x), self.beta

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next moments and products, and the step."""
        (m, v, (b1, b2)), (beta1, beta2) = state, self.beta
        m = beta1 * m + (1 - beta1) * dx
        v = beta2 * v + (1 - beta2) * abs2(dx)
        step = self.eta * ratio(m / (1 - b1), safe_sqrt(v / (1 - b2)) + self.epsilon)
        return (m, v, (b1 * beta1, b2 * beta2)), step
