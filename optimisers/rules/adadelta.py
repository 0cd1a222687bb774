"""AdaDelta: steps in the unit of the parameter, without a learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class AdaDelta(Rule):
    """Step along the gradient, scaled to the running size of the steps themselves.

    Update:
        $a \\leftarrow \\rho a + (1-\\rho) |g|^2$

        step $u = g\\, \\sqrt{d + \\epsilon} / \\sqrt{a + \\epsilon}$

        $d \\leftarrow \\rho d + (1-\\rho) |u|^2$

    State:
        a: mean square of gradients, zeros shaped like x, real, in [g]^2.
        d: mean square of steps, zeros shaped like x, real, in [x]^2.

    Args:
        rho: decay of the means, $0 \\le \\rho \\le 1$.
        epsilon: added to both, in [g]^2 and [x]^2; where d is zero it sets the first steps.

    Raises:
        RuleError: rho outside [0, 1], epsilon negative.

    Differs:
        torch.optim.Adadelta agrees with lr=1, optax.adadelta with learning_rate=1.

    Examples:
        >>> AdaDelta(0.75, 1.0).apply((0.0, 15.0), 0.0, 3.0)[1].round(3)
        Array(6.656, dtype=float32)

    References:
        Zeiler, 2012, algorithm 1, https://arxiv.org/abs/1212.5701
    """

    rho: float = 0.9
    epsilon: float = 1e-8
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return mean squares of zero."""
        return real_zeros_like(x), real_zeros_like(x)

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next mean squares, and the step."""
        (a, d), rho, epsilon = state, self.rho, self.epsilon
        a = rho * a + (1 - rho) * abs2(dx)
        u = ratio(dx * safe_sqrt(d + epsilon), safe_sqrt(a + epsilon))
        d = rho * d + (1 - rho) * abs2(u)
        return (a, d), u
