"""HIPS Autograd: NumPy arrays, in functions written with `autograd.numpy`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from ..arrays.numbers import is_complex
from ..tree import flatten, outline, program, rebuild
from .backend import Arrays, Backend, Differentiable, comes_from, viewed


@dataclass(frozen=True)
class AutoAutograd(Backend):
    """Differentiate with HIPS Autograd: functions written with `autograd.numpy`.

    It is never found from arrays, as NumPy's mean `AutoJAX()`; name it.

    Examples:
        >>> import autograd.numpy as anp
        >>> ad.gradient(lambda w: anp.sum(w**2), np.array([1.0, 2.0]), ad=ad.AutoAutograd())
        array([2., 4.])
    """

    library: ClassVar[str | None] = "autograd"

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Boxes of Autograd, in which arrays are while something around is differentiated."""
        return comes_from(kind, "autograd") and kind.__name__ == "ArrayBox"

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask Autograd; it gives the conjugate of the descent direction."""
        autograd: Any = import_module("autograd")  # by name: its decorators mislead type checkers
        from autograd.extend import vspace

        kept: list[Any] = []

        def value_of(boxes: Any) -> Any:
            value, aux = f([boxes[i] for i in range(len(arrays))])
            kept.append(_unboxed(aux, boxes._trace))
            return value

        xs = [x if self.knows(type(x)) else viewed(x) for x in arrays]
        pull, value = autograd.make_vjp(value_of)(xs)
        grads = pull(vspace(value).ones())
        return (value, kept[0]), [np.conj(g) if is_complex(g.dtype) else g for g in grads]


def _unboxed(aux: Any, trace: Any) -> Any:
    """Take arrays out of the boxes of this differentiation, not out of those around it."""
    leaves, _ = flatten(aux, "aux")
    new = [x._value if getattr(x, "_trace", None) == trace else x for x in leaves]
    held = [i for i, x in enumerate(new) if x is not leaves[i]]
    return rebuild(aux, program(outline(aux, "aux").nodes, held), new, False)
