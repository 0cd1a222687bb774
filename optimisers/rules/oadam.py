"""OAdam: Adam that looks one step ahead, for games."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class OAdam(Rule):
    """Step twice as Adam does, and take back the step before.

    For two players that train against each other, where plain steps go round in circles.

    Update:
        $m \\leftarrow \\beta_1 m + (1-\\beta_1) g$

        $v \\leftarrow \\beta_2 v + (1-\\beta_2) |g|^2$

        $u' = \\eta\\, (m / (1-b_1)) / (\\sqrt{v / (1-b_2)} + \\epsilon)$

        step $= 2 u' - u$

        $b \\leftarrow b \\beta$, $u \\leftarrow u'$

    State:
        m: first moment, zeros shaped like x, in [g].
        v: second moment, zeros shaped like x, real, in [g]^2.
        b: the products $(\\beta_1^t, \\beta_2^t)$, starting at beta, two scalars.
        u: Adam's step the time before, zeros shaped like x, in [x].

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]; about the size of a step.
        beta: decay of the two moments, each in [0, 1).
        epsilon: added to the root, in [g].

    Raises:
        RuleError: eta or epsilon negative, beta outside [0, 1).

    Differs:
        optax.optimistic_adam_v2(nesterov=False) agrees, if its state starts with
        is_initial_step=False; otherwise its first step is single.

    Examples:
        >>> rule = OAdam(0.1)
        >>> state, step = rule.apply(rule.init(jnp.array(1.0)), 1.0, 5.0)
        >>> print(step.round(6), rule.apply(state, 1.0, 5.0)[1].round(6))
        0.2 0.1

    References:
        Daskalakis et al., 2018, algorithm 1, https://arxiv.org/abs/1711.00141
    """

    eta: float = 0.001
    beta: tuple[float, float] = (0.5, 0.9)
    epsilon: float = 1e-8
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return zero moments, the first products of beta, and no step before."""
        return jnp.zeros_like(x), real_zeros_like(x), self.beta, jnp.zeros_like(x)

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next moments, products and Adam's step, and the step."""
        (m, v, (b1, b2), last), (beta1, beta2) = state, self.beta
        m = beta1 * m + (1 - beta1) * dx
        v = beta2 * v + (1 - beta2) * abs2(dx)
        term = self.eta * ratio(m / (1 - b1), safe_sqrt(v / (1 - b2)) + self.epsilon)
        return (m, v, (b1 * beta1, b2 * beta2), term), 2 * term - last
