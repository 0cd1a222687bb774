"""RMSProp: steps divided by a running root mean square of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from ..errors import RuleTypeError
from .numeric import abs2, ratio, real_zeros_like, safe_sqrt
from .rule import Rule


@dataclass(frozen=True, init=False)
class RMSProp(Rule):
    """Step along the gradient, divided by its running root mean square, or deviation.

    Update:
        $q \\leftarrow \\rho q + (1-\\rho) |g|^2$

        $l \\leftarrow \\rho l + (1-\\rho) g$ (centred only; else $l = 0$)

        step $= \\eta\\, g / (\\sqrt{q - |l|^2} + \\epsilon)$

    State:
        q: mean square, zeros shaped like x, real, in [g]^2; centred: the pair (q, l).
        l: mean, zeros shaped like x, in [g].

    Args:
        eta: learning rate $\\eta \\ge 0$, in [x].
        rho: decay of the means, $0 \\le \\rho \\le 1$.
        epsilon: added to the root, in [g].
        centred: whether to divide by the deviation from the mean. Fixed in `setup`, because the
            state depends on it.
        centered: another spelling of centred.

    Raises:
        RuleError: eta or epsilon negative, rho outside [0, 1].
        RuleTypeError: centred is not a bool, or differs from centered.

    Differs:
        torch.optim.RMSprop agrees; optax.rmsprop agrees with eps_in_sqrt=False.

    Examples:
        >>> RMSProp(0.1, 0.75).apply(jnp.array(0.0), 0.0, 4.0)[1].round(6)
        Array(0.2, dtype=float32)

    References:
        Tieleman and Hinton, 2012, Neural networks for machine learning, lecture 6e;
        centred: Graves, 2013, equations 38 to 41, https://arxiv.org/abs/1308.0850
    """

    eta: float = 0.001
    rho: float = 0.9
    epsilon: float = 1e-8
    centred: bool = False
    elementwise: ClassVar[bool] = True

    def __init__(
        self,
        eta: float = 0.001,
        rho: float = 0.9,
        epsilon: float = 1e-8,
        centred: bool = False,
        *,
        centered: bool | None = None,
    ) -> None:
        if centered is not None and centred not in (False, centered):
            raise RuleTypeError(f"RMSProp: got both centred={centred!r} and centered={centered!r}")
        flag = centred if centered is None else centered
        values = {"eta": eta, "rho": rho, "epsilon": epsilon, "centred": flag}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def init(self, x: Any) -> Any:
        """Return the mean square, and if centred also the mean, zero."""
        return (real_zeros_like(x), jnp.zeros_like(x)) if self.centred else real_zeros_like(x)

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next means, and the step."""
        q, lin = state if self.centred else (state, 0)
        q = self.rho * q + (1 - self.rho) * abs2(dx)
        if self.centred:
            lin = self.rho * lin + (1 - self.rho) * dx
        # The difference can be a rounding error below zero; safe_sqrt gives 0 there.
        step = self.eta * ratio(dx, safe_sqrt(q - abs2(lin)) + self.epsilon)
        return ((q, lin) if self.centred else q), step
