"""SignDecay: L1 regularisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .rule import Rule


@dataclass(frozen=True)
class SignDecay(Rule):
    """Add a multiple of the parameter's sign to the gradient.

    Before a rule that steps (`OptimiserChain(SignDecay(l), Descent())`) it is the gradient of the
    penalty $\\lambda |x|$, which draws parameters to zero.

    Update:
        step $= g + \\lambda\\, \\mathrm{sign}(x)$

    State:
        None: `()`.

    Args:
        lambda_: strength $\\lambda \\ge 0$, in [g].

    Raises:
        RuleError: lambda_ negative, infinite or NaN.
        DtypeError: in `setup`, a complex parameter, for which signs have no meaning.

    Differs:
        From Optimisers.jl: not at all.

    Examples:
        >>> SignDecay(0.5).apply((), jnp.array([4.0, 0.0, -4.0]), 1.0)[1]
        Array([1.5, 1. , 0.5], dtype=float32)

    References:
        Tibshirani, 1996, equation 1, https://doi.org/10.1111/j.2517-6161.1996.tb02080.x
    """

    lambda_: float = 1e-3
    elementwise: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = False

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the state unchanged and `dx + lambda_ * sign(x)`."""
        return state, dx + self.lambda_ * jnp.sign(x)
