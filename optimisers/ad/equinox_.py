"""Equinox: models that are, or hold, an `equinox.Module`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from .backend import Differentiable, comes_from
from .jax_ import AutoJAX


@dataclass(frozen=True)
class AutoEquinox(AutoJAX):
    """Differentiate with `equinox.filter_value_and_grad`.

    Examples:
        >>> import equinox as eqx, jax
        >>> layer = eqx.nn.Linear(2, 1, key=jax.random.key(0))
        >>> grads = ad.gradient(lambda m, x: m(x)[0], layer, jnp.array([3.0, 4.0]))
        >>> grads.weight
        Array([[3., 4.]], dtype=float32)
    """

    library: ClassVar[str | None] = "equinox"

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Subclasses of `equinox.Module`."""
        if not comes_from(kind, "equinox"):
            return False
        import equinox

        return issubclass(kind, equinox.Module)

    def transform(self, f: Differentiable) -> Callable[[Any], Any]:
        """Return the function that gives `((value, aux), gradients)`."""
        import equinox

        both: Callable[[Any], Any] = equinox.filter_value_and_grad(f, has_aux=True)
        return both
