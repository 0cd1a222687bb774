"""TensorFlow: nests of variables and tensors."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal

from ..arrays import adapter_of
from .backend import Arrays, Backend, Differentiable, comes_from
from .eager import check_value, taken_over


@dataclass(frozen=True)
class AutoTensorFlow(Backend):
    """Differentiate with `tf.GradientTape`: nests of variables and tensors.

    None stands where the value does not depend on an array; rows that were gathered come as
    IndexedSlices. What stands at several places has its total at the first.

    Examples:
        The model's variables are written in place by `train` and `update_`:

            model = {"w": tf.Variable([1.0, 2.0])}
            ad.gradient(lambda m: tf.reduce_sum(m["w"] ** 2), model)  # {"w": [2.0, 4.0]}
    """

    library: ClassVar[str | None] = "tensorflow"
    tied: ClassVar[Literal["parts", "total"]] = "total"
    in_place: ClassVar[bool] = True

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Tensors and variables."""
        if not comes_from(kind, "tensorflow"):
            return False
        adapter = adapter_of(kind)
        return adapter is not None and adapter.name == "tensorflow"

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask a tape that watches all of the arrays; it gives descent directions."""
        tf: Any = import_module("tensorflow")
        xs = taken_over(arrays, tf.Tensor)
        with tf.GradientTape() as tape:
            for x in xs:
                tape.watch(x)
            value, aux = f(xs)
        check_value(value, tf.Tensor)
        return (value, aux), tape.gradient(value, xs)
