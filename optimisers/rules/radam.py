"""RAdam: Adam that holds back while its second moment is uncertain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class RAdam(Rule):
    """Step as Adam does, rectified by how much is known about the second moment.

    A warm-up without a schedule: with the default beta the first steps are those of momentum.

    Update:
        $m \\leftarrow \\beta_1 m + (1-\\beta_1) g$

        $v \\leftarrow \\beta_2 v + (1-\\beta_2) |g|^2$

        $r_\\infty = 2 / (1-\\beta_2) - 1$

        $r = r_\\infty - 2 t\\, b_2 / (1-b_2)$

        $a = m / (1-b_1)$

        step $= \\eta\\, \\sqrt{\\frac{(r-4)(r-2)\\, r_\\infty}{(r_\\infty-4)(r_\\infty-2)\\, r}}\\,
        a / (\\sqrt{v / (1-b_2)} + \\epsilon)$ if $r > 4$, else $\\eta\\, a$

        $b \\leftarrow b \\beta$, $t \\leftarrow t + 1$

    State:
        m: first moment, zeros shaped like x, in [g].
        v: second moment, zeros shaped like x, real, in [g]^2.
        b: the products $(\\beta_1^t, \\beta_2^t)$, starting at beta, two scalars.
        t: the number of the step, starting at 1, a scalar.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]; in [x]/[g] during the first steps.
        beta: decay of the two moments, each in [0, 1).
        epsilon: added to the root, in [g].

    Raises:
        RuleError: eta or epsilon negative, beta outside [0, 1).

    Differs:
        The paper and Optimisers.jl have the threshold 4, torch.optim.RAdam and optax.radam 5;
        optax.radam(threshold=4) agrees.

    Examples:
        >>> rule = RAdam(0.1)
        >>> rule.apply(rule.init(jnp.array(1.0)), 1.0, 5.0)[1].round(6)
        Array(0.5, dtype=float32)

    References:
        Liu et al., 2020, algorithm 2, https://arxiv.org/abs/1908.03265
    """

    eta: float = 0.001
    beta: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return zero moments, the first products of beta, and the number of the first step."""
        return jnp.zeros_like(x), real_zeros_like(x), self.beta, 1.0

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next moments, products and step number, and the step."""
        (m, v, (b1, b2), t), (beta1, beta2) = state, self.beta
        m = beta1 * m + (1 - beta1) * dx
        v = beta2 * v + (1 - beta2) * abs2(dx)
        rinf = 2 / (1 - beta2) - 1
        r = rinf - 2 * t * b2 / (1 - b2)
        mean, root = m / (1 - b1), safe_sqrt(v / (1 - b2)) + self.epsilon
        step = self.eta * jnp.where(r > 4, _rectifier(r, rinf) * ratio(mean, root), mean)
        return (m, v, (b1 * beta1, b2 * beta2), t + 1), step


def _rectifier(r: Any, rinf: Any) -> Any:
    # Where r <= 4 the value is not used, but its derivative must not be 0 * inf.
    r, rinf = (jnp.where(r > 4, value, 5.0) for value in (r, rinf))
    return jnp.sqrt((r - 4) * (r - 2) * rinf / ((rinf - 4) * (rinf - 2) * r))
