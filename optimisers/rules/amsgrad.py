"""AMSGrad: Adam whose steps never grow back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class AMSGrad(Rule):
    """Step along the mean gradient, divided by the root of its largest mean square so far.

    Update:
        $m \\leftarrow \\beta_1 m + (1-\\beta_1) g$

        $v \\leftarrow \\beta_2 v + (1-\\beta_2) |g|^2$

        $\\hat v \\leftarrow \\max(\\hat v, v)$

        step $= \\eta\\, m / (\\sqrt{\\hat v} + \\epsilon)$

    State:
        m: first moment, zeros shaped like x, in [g].
        v: second moment, epsilon everywhere, shaped like x, real, in [g]^2.
        top: the largest v, epsilon everywhere, shaped like x, real, in [g]^2.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x].
        beta: decay of the two moments, each in [0, 1).
        epsilon: where v starts, in [g]^2, and added to the root, in [g].

    Raises:
        RuleError: eta or epsilon negative, beta outside [0, 1).

    Differs:
        In Optimisers.jl 0.4.8 m starts at epsilon too, so that zero gradients move a parameter.
        torch.optim.Adam(amsgrad=True) and optax.amsgrad correct the bias of the moments.

    Examples:
        >>> rule = AMSGrad(0.1, (0.5, 0.75), 0.0)
        >>> rule.apply(rule.init(jnp.array(1.0)), 1.0, 5.0)[1].round(6)
        Array(0.1, dtype=float32)

    References:
        Reddi, Kale and Kumar, 2018, algorithm 2, https://arxiv.org/abs/1904.09237
    """

    eta: float = 0.001
    beta: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return a zero first moment, and second moments of epsilon."""
        v = real_zeros_like(x) + self.epsilon
        return jnp.zeros_like(x), v, v

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next moments, and the step."""
        (m, v, top), (beta1, beta2) = state, self.beta
        m = beta1 * m + (1 - beta1) * dx
        v = beta2 * v + (1 - beta2) * abs2(dx)
        top = jnp.maximum(top, v)
        return (m, v, top), self.eta * ratio(m, safe_sqrt(top) + self.epsilon)
