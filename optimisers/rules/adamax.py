"""AdaMax: Adam with the largest gradient in place of the mean square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .numeric import ratio, real_zeros_like
from .rule import Rule


@dataclass(frozen=True)
class AdaMax(Rule):
    """Step along the mean gradient, divided by the largest one, which is slowly forgotten.

    Update:
        $m \\leftarrow \\beta_1 m + (1-\\beta_1) g$

        $u \\leftarrow \\max(\\beta_2 u, |g|)$

        step $= \\eta / (1-b) \\cdot m / (u + \\epsilon)$

        $b \\leftarrow b \\beta_1$

    State:
        m: first moment, zeros shaped like x, in [g].
        u: largest modulus, zeros shaped like x, real, in [g].
        b: the product $\\beta_1^t$, starting at $\\beta_1$, a scalar.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]; about the size of a step.
        beta: decay of the moment and of the largest modulus, each in [0, 1).
        epsilon: added to the divisor, in [g].

    Raises:
        RuleError: eta or epsilon negative, beta outside [0, 1).

    Differs:
        As Keras; the paper has no epsilon. torch.optim.Adamax takes the maximum with
        $|g| + \\epsilon$ instead, optax.adamax with $|g| + \\epsilon$ too.

    Examples:
        >>> rule = AdaMax(0.1)
        >>> rule.apply(rule.init(jnp.array(1.0)), 1.0, 5.0)[1].round(6)
        Array(0.1, dtype=float32)

    References:
        Kingma and Ba, 2015, algorithm 2, https://arxiv.org/abs/1412.6980
    """

    eta: float = 0.001
    beta: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return a zero moment, a zero modulus, and the first product of beta."""
        return jnp.zeros_like(x), real_zeros_like(x), self.beta[0]

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next moment, modulus and product, and the step."""
        (m, u, b), (beta1, beta2) = state, self.beta
        m = beta1 * m + (1 - beta1) * dx
        u = jnp.maximum(beta2 * u, jnp.abs(dx))
        step = self.eta / (1 - b) * ratio(m, u + self.epsilon)
        return (m, u, b * beta1), step
