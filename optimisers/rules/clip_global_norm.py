"""ClipGlobalNorm: bound the norm of the whole gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from .across import ALONE, Across
from .norms import scaled_norm, shrink
from .rule import Rule


@dataclass(frozen=True)
class ClipGlobalNorm(Rule):
    """Scale all gradients down by one factor where their common 2-norm exceeds a bound.

    The direction of the whole gradient stays as it is. The norm is over all parameters of a state
    under this rule: tied ones once, by their total gradient; frozen ones and those without a
    gradient not at all. In a chain it is the norm of what arrives there.

    Update:
        $\\|g\\| = \\sqrt{\\sum_{\\text{parameters}} \\sum |g|^2}$

        step $= \\min(\\omega / \\|g\\|,\\ 1)\\, g$

    State:
        norm: the norm in the last step, before clipping, 0 at first, a scalar, in [g].

    Args:
        omega: the bound $\\omega \\ge 0$, in [g]; 0 makes every step zero.
        throw: whether a norm that is not finite is an error, where it can be one (not under jit).
            Otherwise an infinite norm makes finite elements 0 and infinite ones NaN, a norm that
            is NaN makes all NaN; to leave out such steps, use `SkipNonFinite`.

    Raises:
        RuleError: omega negative or NaN.
        NonFiniteError: in `update`, before anything is written, where throw is set and the norm
            is not finite.

    Differs:
        torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm; optax.clip_by_global_norm agrees, up
        to where squares overflow or underflow. Optimisers.jl has no such rule.

    Examples:
        >>> rule = ClipGlobalNorm(1.0)
        >>> rule.apply(rule.init(jnp.zeros(2)), jnp.zeros(2), jnp.array([6.0, 8.0]))[1]
        Array([0.6, 0.8], dtype=float32)

    References:
        Pascanu, Mikolov and Bengio, 2013, algorithm 1, https://arxiv.org/abs/1211.5063
    """

    omega: float = 10.0
    throw: bool = False
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        """Return the norm before the first step, 0."""
        return 0.0

    def apply(self, state: Any, x: Any, dx: Any, *, across: Across = ALONE) -> tuple[Any, Any]:
        """Return the norm, and the gradient, scaled down where all together are too long."""
        scale, root = scaled_norm(dx, 2.0, across.model)
        if self.throw:
            across.require(
                jnp.isfinite(root),
                "ClipGlobalNorm cannot clip gradients whose common norm is not finite; "
                "throw=False lets them pass",
            )
        return scale * root, shrink(dx, scale, root, self.omega)
