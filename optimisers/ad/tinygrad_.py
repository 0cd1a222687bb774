"""tinygrad: nests of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Literal

from ..state import State
from ..tree import flatten, outline, program, rebuild
from .backend import Arrays, Backend, Differentiable, checked, comes_from
from .eager import check_value, taken_over
from .parts import Parts

MOST = 16


@dataclass(frozen=True)
class AutoTinygrad(Backend):
    """Differentiate with `Tensor.gradient`: nests of tensors, whose `.grad` is left alone.

    None stands where the value does not depend on a tensor. What stands at several places has its
    total at the first. `train` lets TinyJit capture the loss, if its batches are tensors: then the
    Python in it runs twice, and from there on only what it computed.

    Examples:
        The model's tensors are written in place by `train` and `update_`:

            model = {"w": Tensor([1.0, 2.0])}
            ad.gradient(lambda m: (m["w"] ** 2).sum(), model)  # {"w": [2.0, 4.0]}
    """

    library: ClassVar[str | None] = "tinygrad"
    tied: ClassVar[Literal["parts", "total"]] = "total"
    in_place: ClassVar[bool] = True
    carries: ClassVar[bool] = True

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Tensors."""
        return comes_from(kind, "tinygrad") and kind.__name__ == "Tensor"

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask tinygrad, and compute the value, what is beside it, and all gradients together."""
        tensor: Any = import_module("tinygrad").Tensor
        xs = taken_over(arrays, tensor)
        _compute(xs)  # what is drawn at random would be drawn anew each time
        value, aux = f(xs)
        check_value(value, tensor)
        computed = value.uop.toposort()
        asked = [x for x in xs if x.uop in computed]
        grads = [g.contiguous() for g in value.gradient(*asked)]
        found = dict(zip(map(id, asked), grads, strict=True))
        _compute([value, *found.values(), *flatten(aux, "aux")[0]])
        return (value, aux), [found.get(id(x)) for x in xs]

    def compiled(self, f: Any) -> Callable[..., tuple[Any, Any]]:
        """Return a function that is captured once for each model and shape of batch."""
        return Captured(self, f)


class Captured:
    """A loss whose value and gradients TinyJit captures; tensors of batches are its arguments."""

    def __init__(self, backend: Backend, f: Any) -> None:
        self._backend, self._f = backend, f
        self._programs: dict[Any, Any] = {}

    def __call__(self, state: State, model: Any, *data: Any) -> tuple[Any, Any]:
        """Return the value and the gradients nested like the model."""
        jit, parts = import_module("tinygrad.engine.jit"), Parts(model, state)
        batch, structure = flatten(data, "data")
        shapes = tuple((x.shape, x.dtype) if self._backend.knows(type(x)) else None for x in batch)
        key = (parts.at, tuple(map(id, parts.leaves)), structure, shapes)
        if key not in self._programs:
            if len(self._programs) == MOST:
                self._programs.clear()
            may = batch and parts.arrays and None not in shapes
            self._programs[key] = jit.TinyJit(partial(self._run, parts, data)) if may else None
        captured = self._programs[key]
        if captured is not None:
            try:
                value, grads = captured(*batch)
                return value, parts.nested(grads)
            except jit.JitError:  # the loss looks at numbers, or a batch has one tensor twice
                self._programs[key] = None
        return self._backend.value_and_gradient(self._f, model, *data, state=state)

    def _run(self, parts: Parts, data: Any, *batch: Any) -> tuple[Any, list[Any]]:
        _compute(parts.leaves)
        steps = program(outline(data, "data").nodes, range(len(batch)))
        own = rebuild(data, steps, batch, False)

        def of_arrays(new: Arrays) -> tuple[Any, Any]:
            model = parts.model_with(new)
            value, _ = checked(self._f(model, *own), False)
            return value, parts.rest_of(model)

        (value, _), grads = self._backend._differentiated(of_arrays, parts.arrays)
        return value, list(grads)


def _compute(xs: Sequence[Any]) -> None:
    """Compute those of some objects that are tensors, in one go."""
    tensors = [x for x in xs if AutoTinygrad.knows(type(x))]
    if tensors:
        tensors[0].realize(*tensors[1:])
