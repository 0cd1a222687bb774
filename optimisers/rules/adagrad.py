"""AdaGrad: steps that shrink with the gradients seen so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True)
class AdaGrad(Rule):
    """Step along the gradient, divided by the root of the sum of all squares so far.

    For sparse gradients: elements that seldom have one keep long steps.

    Update:
        $a \\leftarrow a + |g|^2$

        step $= \\eta\\, g / (\\sqrt{a} + \\epsilon)$

    State:
        a: sum of squares, epsilon everywhere, shaped like x, real, in [g]^2.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]; the size of the first step.
        epsilon: where the sum starts, in [g]^2, and added to its root, in [g].

    Raises:
        RuleError: eta or epsilon negative.

    Differs:
        torch.optim.Adagrad agrees with initial_accumulator_value=epsilon, eps=epsilon.
        optax.adagrad has the epsilon inside the root.

    Examples:
        >>> AdaGrad(0.1).apply(9.0, 0.0, 4.0)[1].round(6)
        Array(0.08, dtype=float32)

    References:
        Duchi, Hazan and Singer, 2011, equation 1, https://jmlr.org/papers/v12/duchi11a.html
    """

    eta: float = 0.1
    epsilon: float = 1e-8
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return a sum of epsilon."""
        return real_zeros_like(x) + self.epsilon

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next sum, and the step."""
        a = state + abs2(dx)
        return a, self.eta * ratio(dx, safe_sqrt(a) + self.epsilon)
