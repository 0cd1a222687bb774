"""AdaBelief: Adam whose steps are long where the gradient is as expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class AdaBelief(Rule):
    """Step along the mean gradient, divided by the root of its mean square deviation.

    Update:
        $m \\leftarrow \\beta_1 m + (1-\\beta_1) g$

        $s \\leftarrow \\beta_2 s + (1-\\beta_2) |g - m|^2 + \\epsilon$

        step $= \\eta\\, (m / (1-b_1)) / (\\sqrt{s / (1-b_2)} + \\epsilon)$

        $b \\leftarrow b \\beta$

    State:
        m: first moment, zeros shaped like x, in [g].
        s: mean square deviation, zeros shaped like x, real, in [g]^2.
        b: the products $(\\beta_1^t, \\beta_2^t)$, starting at beta, two scalars.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x].
        beta: decay of the two moments, each in [0, 1).
        epsilon: added to s in each step, in [g]^2, and to the root, in [g].

    Raises:
        RuleError: eta or epsilon negative, beta outside [0, 1).

    Differs:
        optax.adabelief agrees with eps=epsilon, eps_root=epsilon.

    Examples:
        >>> rule = AdaBelief(0.1, (0.5, 0.75))
        >>> rule.apply(rule.init(jnp.array(1.0)), 1.0, 5.0)[1].round(6)
        Array(0.2, dtype=float32)

    References:
        Zhuang et al., 2020, algorithm 2, https://arxiv.org/abs/2010.07468
    """

    eta: float = 0.001
    beta: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-16
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return zero moments and the first products of beta."""
        return jnp.zeros_like(x), real_zeros_like(x), self.beta

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next moments and products, and the step."""
        (m, s, (b1, b2)), (beta1, beta2) = state, self.beta
        m = beta1 * m + (1 - beta1) * dx
        s = beta2 * s + (1 - beta2) * abs2(dx - m) + self.epsilon
        step = self.eta * ratio(m / (1 - b1), safe_sqrt(s / (1 - b2)) + self.epsilon)
        return (m, s, (b1 * beta1, b2 * beta2)), step
