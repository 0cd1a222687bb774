"""tinygrad: nests of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal

from .backend import Arrays, Backend, Differentiable, comes_from
from .eager import check_value, taken_over


@dataclass(frozen=True)
class AutoTinygrad(Backend):
    """Differentiate with `Tensor.gradient`: nests of tensors, whose `.grad` is left alone.

    None stands where the value does not depend on a tensor. What stands at several places has its
    total at the first.

    Examples:
        The model's tensors are written in place by `train` and `update_`:

            model = {"w": Tensor([1.0, 2.0])}
            ad.gradient(lambda m: (m["w"] ** 2).sum(), model)  # {"w": [2.0, 4.0]}
    """

    library: ClassVar[str | None] = "tinygrad"
    tied: ClassVar[Literal["parts", "total"]] = "total"
    in_place: ClassVar[bool] = True

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Tensors."""
        return comes_from(kind, "tinygrad") and kind.__name__ == "Tensor"

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask tinygrad, and compute the value and all gradients together."""
        tensor: Any = import_module("tinygrad").Tensor
        xs = taken_over(arrays, tensor)
        value, aux = f(xs)
        check_value(value, tensor)
        computed = value.uop.toposort()
        asked = [x for x in xs if x.uop in computed]
        found = dict(zip(map(id, asked), value.gradient(*asked), strict=True))
        value.realize(*found.values())
        return (value, aux), [found.get(id(x)) for x in xs]
