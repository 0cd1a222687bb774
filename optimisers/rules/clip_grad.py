"""ClipGrad: bound each element of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .rule import Rule


@dataclass(frozen=True)
class ClipGrad(Rule):
    """Clamp each element of the gradient to [-delta, delta].

    Update:
        step $= \\min(\\max(g, -\\delta), \\delta)$

    State:
        None: `()`.

    Args:
        delta: the bound $\\delta \\ge 0$, in [g].

    Raises:
        RuleError: delta negative or NaN.
        DtypeError: in `setup`, a complex parameter, for which clamping has no meaning.

    Differs:
        torch.nn.utils.clip_grad_value_ and optax.clip agree.

    Examples:
        >>> ClipGrad(2.0).apply((), jnp.zeros(3), jnp.array([1.0, 3.0, -7.0]))[1]
        Array([ 1.,  2., -2.], dtype=float32)

    References:
        Mikolov, 2012, Statistical language models based on neural networks, section 3.2.2.
    """

    delta: float = 10.0
    elementwise: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = False

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the state unchanged and the clamped gradient."""
        return state, jnp.clip(dx, -self.delta, self.delta)
