"""ClipNorm: bound the norm of each parameter's gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from ..errors import RuleError, RuleTypeError
from .across import ALONE, Across
from .fields import static_field
from .norms import scaled_norm, shrink
from .rule import Rule


@dataclass(frozen=True)
class ClipNorm(Rule):
    """Scale the gradient of one parameter down where its p-norm exceeds a bound.

    Update:
        $s = \\min(\\omega / \\|g\\|_p,\\ 1)$

        step $= s\\, g$

    State:
        None: `()`.

    Args:
        omega: the bound $\\omega \\ge 0$, in [g]; 0 makes every step zero.
        p: which norm: any real number, infinity (largest element), -infinity (smallest) or 0 (how
            many elements are not zero). Fixed when compiled.
        throw: whether a norm that is not finite is an error. It can be one only on concrete
            arrays; under jit it is as with `throw=False`: an infinite norm makes finite
            elements 0 and infinite ones NaN, a norm that is NaN makes all NaN.

    Raises:
        RuleError: omega negative or NaN, p NaN.
        NonFiniteError: in `update`, before anything is written, where throw is set and the norm
            is not finite.

    Differs:
        torch.nn.utils.clip_grad_norm_ of one array adds 1e-6 to the norm. As in Optimisers.jl the
        norm is of one parameter; of all together it is `ClipGlobalNorm`. Elements from 1e-38 to
        1e38 are measured without overflow and underflow. Complex elements count by their modulus.

    Examples:
        >>> ClipNorm(1.0).apply((), jnp.zeros(2), jnp.array([6.0, 8.0]))[1]
        Array([0.6, 0.8], dtype=float32)

    References:
        Pascanu, Mikolov and Bengio, 2013, algorithm 1, https://arxiv.org/abs/1211.5063
    """

    omega: float = 10.0
    p: float = static_field(2.0)
    throw: bool = True
    elementwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.p, bool) or not isinstance(self.p, int | float):
            raise RuleTypeError(f"ClipNorm: p must be a number, got {self.p!r}")
        if math.isnan(self.p):
            raise RuleError("ClipNorm: p must be a number that is not NaN, got nan")
        object.__setattr__(self, "p", float(self.p))

    def apply(self, state: Any, x: Any, dx: Any, *, across: Across = ALONE) -> tuple[Any, Any]:
        """Return the state unchanged and the gradient, scaled down where it is too long."""
        scale, root = scaled_norm(dx, self.p, across.array)
        if self.throw:
            across.require(
                jnp.isfinite(root),
                f"ClipNorm cannot clip a gradient whose {self.p:g}-norm is not finite; "
                "throw=False lets it pass",
            )
        return state, shrink(dx, scale, root, self.omega)
