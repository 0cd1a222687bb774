"""AdamW: Adam with weight decay that is not divided by the second moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class AdamW(Rule):
    """Step as Adam does, and shrink the parameter beside it.

    Update:
        $m \\leftarrow \\beta_1 m + (1-\\beta_1) g$

        $v \\leftarrow \\beta_2 v + (1-\\beta_2) |g|^2$

        $u = (m / (1-b_1)) / (\\sqrt{v / (1-b_2)} + \\epsilon)$

        step $= \\eta\\, (u + \\lambda x)$ if coupled, else $\\eta\\, u + \\lambda x$

        $b \\leftarrow b \\beta$

    State:
        m: first moment, zeros shaped like x, in [g].
        v: second moment, zeros shaped like x, real, in [g]^2.
        b: the products $(\\beta_1^t, \\beta_2^t)$, starting at beta, two scalars.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]; about the size of a step.
        beta: decay of the two moments, each in [0, 1).
        lambda_: decay $\\lambda \\ge 0$, in 1/[x] if coupled, else without a unit.
        epsilon: added to the root, in [g].
        couple: whether eta scales the decay too.

    Raises:
        RuleError: eta, lambda_ or epsilon negative, beta outside [0, 1).

    Differs:
        torch.optim.AdamW and optax.adamw are coupled, with another default lambda_. The paper has
        $\\eta \\alpha$ for our eta and $\\eta$ before $\\lambda$: not coupled to $\\alpha$.

    Examples:
        >>> for couple in (True, False):
        ...     rule = AdamW(0.5, lambda_=0.25, couple=couple)
        ...     print(rule.apply(rule.init(jnp.array(2.0)), 2.0, 0.0)[1])
        0.25
        0.5

    References:
        Loshchilov and Hutter, 2019, algorithm 2, https://arxiv.org/abs/1711.05101
    """

    eta: float = 0.001
    beta: tuple[float, float] = (0.9, 0.999)
    lambda_: float = 0.0
    epsilon: float = 1e-8
    couple: bool = True
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return zero moments and the first products of beta."""
        return jnp.zeros_like(x), real_zeros_like(x), self.beta

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next moments and products, and the step."""
        (m, v, (b1, b2)), (beta1, beta2) = state, self.beta
        m = beta1 * m + (1 - beta1) * dx
        v = beta2 * v + (1 - beta2) * abs2(dx)
        u = ratio(m / (1 - b1), safe_sqrt(v / (1 - b2)) + self.epsilon)
        decay = self.lambda_ * x
        step = self.eta * (u + decay) if self.couple else self.eta * u + decay
        return (m, v, (b1 * beta1, b2 * beta2)), step
