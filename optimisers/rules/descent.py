"""Descent: plain gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .rule import Rule


@dataclass(frozen=True)
class Descent(Rule):
    """Step against the gradient.

    Update:
        step $= \\eta\\, g$

    State:
        None: `()`.

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x]/[g].

    Raises:
        RuleError: eta negative, infinite or NaN.

    Differs:
        Optimisers.jl 0.4.8 accepts a negative eta. torch.optim.SGD and optax.sgd agree.

    Examples:
        >>> Descent(0.1).apply((), 1.0, 5.0)[1]
        Array(0.5, dtype=float32)

    References:
        Cauchy, 1847, Comptes rendus 25, p. 536.
    """

    eta: float = 0.1
    elementwise: ClassVar[bool] = True

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the state unchanged and the step `eta * dx`."""
        return state, self.eta * dx
