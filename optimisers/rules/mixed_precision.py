"""MixedPrecision: small steps that a 16-bit parameter could not take."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.numbers import compute_dtype, describe, is_wide, x64_enabled
from ..errors import DtypeError, RuleTypeError
from .rule import Flow, Rule, Wrapper, hold, restart, start


@dataclass(frozen=True)
class MixedPrecision(Wrapper):
    """Run a rule on a copy of the parameter in higher precision; the parameter follows, rounded.

    A step of 1e-3 cannot move a bfloat16 parameter of 1.0; here it moves the copy, and after a few
    steps the parameter too.

    Update:
        $w \\leftarrow x$ where $x \\ne \\mathrm{round}(w)$: written from outside

        $w \\leftarrow w - \\mathrm{step}$ of the rule at $w$

        $x \\leftarrow \\mathrm{round}(w)$, exactly

    State:
        w: master copy of x, in [x], in `dtype` or the parameter's own dtype if that is wider.
        rule: the state of the rule for w.

    Args:
        rule: the rule, or chain, that runs on the master copy.
        dtype: float32, or float64 with JAX's x64 mode on.

    Raises:
        RuleTypeError: rule is not a rule, or is itself a wrapper around everything.
        DtypeError: dtype is not float32 or float64; in `setup`, float64 without x64 mode.

    Differs:
        Optimisers.jl has the type first, `MixedPrecision(Float32, rule)`, and does not notice that
        a parameter was written from outside.

    Examples:
        >>> from optimisers.rules import Descent
        >>> rule = MixedPrecision(Descent(0.001))
        >>> x = jnp.ones((), jnp.bfloat16)
        >>> state, step = rule.apply(rule.init(x), x, jnp.ones_like(x))
        >>> print(state[0].round(6), step.value)
        0.999 1

    References:
        Micikevicius et al., 2018, section 3.1, https://arxiv.org/abs/1710.03740
    """

    rule: Rule
    dtype: Any = np.float32
    outside: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self.check_inside(self.rule)
        try:
            dtype = np.dtype(self.dtype)
        except TypeError:
            raise RuleTypeError(f"MixedPrecision: dtype is no dtype, got {self.dtype!r}") from None
        if dtype not in (np.float32, np.float64):
            raise DtypeError(f"MixedPrecision: dtype must be float32 or float64, got {dtype}")
        object.__setattr__(self, "dtype", dtype)

    def __repr__(self) -> str:
        dtype = "" if self.dtype == np.float32 else f", {self.dtype}"
        return f"MixedPrecision({self.rule!r}{dtype})"

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        """Whether the rule inside is elementwise."""
        return self.rule.elementwise

    @property
    def takes_complex(self) -> bool:  # type: ignore[override]
        """Whether the rule inside has a meaning for complex numbers."""
        return self.rule.takes_complex

    def packs(self, shape: tuple[int, ...], dtype: Any) -> bool:
        """Tell whether the rule inside may be computed in rows, of the master copy's dtype."""
        return self.rule.packs(shape, np.promote_types(self.dtype, compute_dtype(dtype)))

    def init(self, x: Any) -> Any:
        """Return the master copy, and the state of the rule for it."""
        dtype = np.promote_types(self.dtype, x.dtype)
        if is_wide(dtype) and not x64_enabled():
            raise DtypeError(
                f"MixedPrecision(dtype=float64) cannot keep a copy of {describe(x)} while JAX's "
                'x64 mode is off; call jax.config.update("jax_enable_x64", True) first'
            )
        master = x.astype(dtype)
        return master, start(self.rule, master)

    def adjust_state(self, old: Any, state: Any) -> Any:
        """Return the master copy as it was, and the state of the rule after its adjustment."""
        return state[0], restart(self.rule, old.rule, state[1])

    def advance(self, state: Any, x: Any, flow: Flow) -> tuple[Any, Flow]:
        """Step with the master copy; the parameter is replaced by what it rounds to."""
        (old, inner), dtype = state, flow.dtype
        master = jnp.where(_differ(old.astype(dtype), x.astype(dtype)), x.astype(old.dtype), old)
        grads = [g.astype(old.dtype) for g in (flow.dx, *flow.higher)]
        with _promotion(old.dtype, x.dtype):
            inner, out = self.rule.advance(
                inner, master, flow._replace(dx=grads[0], higher=tuple(grads[1:]))
            )
        new = master - out.dx.astype(old.dtype) if out.value is None else out.value
        # In the parameter's own dtype: XLA may skip a rounding that is widened again right away.
        value = new.astype(dtype)
        return (hold(out.run, new, old), inner), out._replace(value=value)


def _differ(a: Any, b: Any) -> Any:
    """Compare two arrays of one dtype; narrow ones by their bits, which XLA has to round for."""
    if a.dtype.itemsize >= 4:
        return a != b
    bits = np.dtype(f"uint{8 * a.dtype.itemsize}")
    return jax.lax.bitcast_convert_type(a, bits) != jax.lax.bitcast_convert_type(b, bits)


def _promotion(master: Any, x: Any) -> AbstractContextManager[Any]:
    # Hyper-parameters are as wide as the parameter is, which the master copy may exceed.
    return nullcontext() if master == x else jax.numpy_dtype_promotion("standard")
