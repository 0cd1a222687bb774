"""NAdam: Adam with Nesterov's look ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class NAdam(Rule):
    """Step along where the mean gradient is going, divided by the root of its mean square.

    Update:
        $m \\leftarrow \\beta_1 m + (1-\\beta_1) g$

        $v \\leftarrow \\beta_2 v + (1-\\beta_2) |g|^2$

        $a = \\beta_1 m / (1 - \\beta_1 b_1) + (1-\\beta_1) g / (1 - b_1)$

        step $= \\eta\\, a / (\\sqrt{\\beta_2 v / (1 - b_2)} + \\epsilon)$

        $b \\leftarrow b \\beta$

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
        As in Optimisers.jl, v has a factor $\\beta_2$ in the root that others lack:
        optax.nadam($\\eta/\\sqrt{\\beta_2}$, eps=$\\epsilon/\\sqrt{\\beta_2}$) agrees.
        torch.optim.NAdam also has a schedule of $\\beta_1$.

    Examples:
        >>> rule = NAdam(0.1, (0.5, 0.25))
        >>> rule.apply(rule.init(jnp.array(1.0)), 1.0, 5.0)[1].round(6)
        Array(0.266667, dtype=float32)

    References:
        Dozat, 2016, algorithm 2, https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ
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
        ahead = beta1 * m / (1 - beta1 * b1) + (1 - beta1) * dx / (1 - b1)
        step = self.eta * ratio(ahead, safe_sqrt(beta2 * v / (1 - b2)) + self.epsilon)
        return (m, v, (b1 * beta1, b2 * beta2)), step
