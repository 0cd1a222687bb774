"""MLX: nests of arrays, and modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from .backend import Arrays, Backend, Differentiable, comes_from
from .eager import check_value, taken_over


@dataclass(frozen=True)
class AutoMLX(Backend):
    """Differentiate with `mlx.core.value_and_grad`: nests of arrays, and modules.

    What the function writes into the arrays of a module that are not trained (running means) stands
    in the module afterwards.

    Examples:
        The model's arrays are written in place by `train` and `update_`:

            model = {"w": mx.array([1.0, 2.0])}
            ad.gradient(lambda m: (m["w"] ** 2).sum(), model)  # {"w": [2.0, 4.0]}
    """

    library: ClassVar[str | None] = "mlx"
    install: ClassVar[str] = '"mlx[cpu]"'
    in_place: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Arrays and modules."""
        if not comes_from(kind, "mlx"):
            return False
        return issubclass(kind, import_module("mlx.core").array | import_module("mlx.nn").Module)

    def kept(self, leaves: Sequence[Any]) -> Callable[[], None]:
        """Keep all arrays, as copies that nobody computes unless they are asked for."""
        mx: Any = import_module("mlx.core")
        copies = [(x, mx.stop_gradient(x)) for x in leaves if isinstance(x, mx.array)]

        def restore() -> None:
            for x, old in copies:
                x[...] = old

        return restore

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask MLX; it gives descent directions."""
        mx: Any = import_module("mlx.core")

        def value_of(xs: Any) -> tuple[Any, Any]:
            value, aux = f(xs)
            check_value(value, mx.array)
            return value, aux

        out, grads = mx.value_and_grad(value_of)(taken_over(arrays, mx.array))
        mx.eval(out[0], grads)  # or the graphs of all steps would wait to be computed together
        return out, grads
