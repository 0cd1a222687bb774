"""Rprop: a step size for each element, learnt from signs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..arrays.numbers import is_wide, precision
from ..errors import RuleError, RuleTypeError
from .checks import FINITE
from .rule import Rule


@dataclass(frozen=True)
class Rprop(Rule):
    """Step by a size that grows while the gradient keeps its sign, and shrinks where it turns.

    For gradients of the whole data set; the size of a gradient is not looked at.

    Update:
        $h \\leftarrow \\min(h\\, \\ell_2, \\gamma_2)$ where $g$ has the sign of the one before

        $h \\leftarrow \\max(h\\, \\ell_1, \\gamma_1)$ and $g \\leftarrow 0$ where it turned

        step $= h\\, \\mathrm{sign}(g)$

    State:
        g: the gradient before, zeros shaped like x, in [g].
        h: the step sizes, eta everywhere, shaped like x, in [x].

    Args:
        eta: first step size $\\eta \\ge 0$, in [x]. `adjust(eta=...)` scales the step sizes by the
            ratio of new to old; from 0 it sets them to the new eta, within gamma.
        ell: factors by which a step size shrinks, in [0, 1], and grows, at least 1.
        gamma: least and greatest step size, in [x].

    Raises:
        RuleError: a number out of its range, or gamma's first above its second.
        RuleTypeError: eta is a schedule: it only says where the step sizes begin.
        DtypeError: in `setup`, a complex parameter, for which signs have no meaning.

    Differs:
        torch.optim.Rprop agrees. optax.rprop lags one step where a sign turns. In Optimisers.jl
        0.4.8 `adjust(eta)` has no effect.

    Examples:
        >>> rule = Rprop(0.1)
        >>> state, step = rule.apply(rule.init(jnp.zeros(3)), 0.0, jnp.array([5.0, 5.0, -5.0]))
        >>> rule.apply(state, 0.0, jnp.array([1.0, -1.0, 0.0]))[1].round(6)
        Array([0.12, 0.  , 0.  ], dtype=float32)

    References:
        Igel and Hüsken, 2000, Improving the Rprop learning algorithm, section 2 (iRprop-), after
        Riedmiller and Braun, 1993, https://doi.org/10.1109/ICNN.1993.298623
    """

    eta: float = 1e-3
    ell: tuple[float, float] = (0.5, 1.2)
    gamma: tuple[float, float] = (1e-6, 50.0)
    elementwise: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = False
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {
        "ell[0]": (0.0, 1.0),
        "ell[1]": (1.0, FINITE),
        "gamma[0]": (0.0, FINITE),
        "gamma[1]": (0.0, math.inf),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if callable(self.eta):
            raise RuleTypeError(
                "Rprop: eta is the first step size and cannot be a schedule; adjust(state, eta=...)"
                " rescales the step sizes"
            )
        low, high = self.gamma
        if isinstance(low, float) and isinstance(high, float) and low > high:
            raise RuleError(f"Rprop: gamma must not fall, got {self.gamma!r}")

    def init(self, x: Any) -> Any:
        """Return a gradient of zeros and step sizes of eta."""
        return jnp.zeros_like(x), jnp.zeros_like(x) + self.eta

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the gradient as remembered and the next step sizes, and the step."""
        (g, h), (ell1, ell2), (gamma1, gamma2) = state, self.ell, self.gamma
        turn = jnp.sign(dx) * jnp.sign(g)  # of signs: a product of small gradients would be 0
        h = jnp.where(turn > 0, jnp.minimum(h * ell2, gamma2), h)
        h = jnp.where(turn < 0, jnp.maximum(h * ell1, gamma1), h)
        g = jnp.where(turn < 0, 0, dx)
        return (g, h), h * jnp.sign(g)

    def adjust_state(self, old: Any, state: Any) -> Any:
        """Return the step sizes scaled by the ratio of new to old eta; the rest as it was."""
        g, h = state
        with precision(is_wide(h.dtype)):
            was, now = (jnp.asarray(eta, h.dtype) for eta in (old.eta, self.eta))
            fresh = jnp.clip(now, *(jnp.asarray(bound, h.dtype) for bound in self.gamma))
            scaled = jnp.where(was > 0, h * (now / jnp.where(was > 0, was, 1)), fresh)
            # A 64-bit state is kept in NumPy arrays where JAX's x64 mode is off.
            keep = isinstance(h, np.ndarray) and not isinstance(scaled, Tracer)
            return g, np.asarray(scaled) if keep else scaled
