"""WeightDecay: L2 regularisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .rule import Rule


@dataclass(frozen=True)
class WeightDecay(Rule):
    """Add a multiple of the parameter to the gradient.

    Before a rule that steps (`OptimiserChain(WeightDecay(l), Descent())`) it is the gradient of the
    penalty $\\frac{\\lambda}{2}|x|^2$; after it, the decay is decoupled and not scaled by eta.

    Update:
        step $= g + \\lambda x$

    State:
        None: `()`.

    Args:
        lambda_: strength $\\lambda \\ge 0$, in [g]/[x].

    Raises:
        RuleError: lambda_ negative, infinite or NaN.

    Differs:
        optax.add_decayed_weights agrees.

    Examples:
        >>> WeightDecay(0.5).apply((), 4.0, 1.0)[1]
        Array(3., dtype=float32)

    References:
        Krogh and Hertz, 1991, equation 2, https://proceedings.neurips.cc/paper/1991
    """

    lambda_: float = 5e-4
    elementwise: ClassVar[bool] = True

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the state unchanged and `dx + lambda_ * x`."""
        return state, dx + self.lambda_ * x
