"""Flax NNX: models that are, or hold, an `nnx.Module`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .backend import comes_from
from .jax_ import AutoJAX


@dataclass(frozen=True)
class AutoNNX(AutoJAX):
    """Differentiate Flax NNX modules with respect to their `nnx.Param`.

    What the function writes into other variables of the module (running means, random states)
    stands in the module afterwards, as it does after `nnx.grad`; variables that it adds do not.

    Examples:
        >>> from flax import nnx
        >>> layer = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
        >>> grads = ad.gradient(lambda m, x: m(x)[0], layer, jnp.array([3.0, 4.0]))
        >>> grads["kernel"]["value"].tolist()
        [[3.0], [4.0]]
    """

    library: ClassVar[str | None] = "flax"
    in_place: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Modules, and other objects of NNX; a Variable or State outside of them is JAX's."""
        if not comes_from(kind, "flax"):
            return False
        from flax import nnx

        return issubclass(kind, nnx.Pytree)
