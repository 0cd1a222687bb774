"""torch: nests of tensors, and modules."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

from ..arrays import adapter_of
from ..errors import ArgumentError
from ..tree import flatten, outline, program, rebuild
from .backend import Arrays, Backend, Differentiable, comes_from, once, viewed
from .parts import objects_in

# Whether a gradient is being taken of what is going on: then it must be differentiable itself.
_within: ContextVar[bool] = ContextVar("within", default=False)


@dataclass(frozen=True)
class AutoTorch(Backend):
    """Differentiate with `torch.autograd.grad`: nests of tensors, and modules.

    `.grad` of no tensor is read or written. None stands where the value does not depend on a
    tensor. A Parameter is differentiated as it is, and where it stands at several places, its total
    is at the first; other tensors get a contribution at each place.

    Examples:
        >>> import torch
        >>> model = {"w": torch.tensor([1.0, 2.0]), "unused": torch.ones(1)}
        >>> ad.gradient(lambda m: (m["w"] ** 2).sum(), model)
        {'w': tensor([2., 4.]), 'unused': None}
    """

    library: ClassVar[str | None] = "torch"
    in_place: ClassVar[bool] = True

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Tensors and modules."""
        if not comes_from(kind, "torch"):
            return False
        import torch

        return issubclass(kind, torch.Tensor | torch.nn.Module)

    def watch(self, model: Any) -> Callable[[], Callable[[], None]]:
        """Keep what modules write when they are called, their buffers, and tensors of integers."""
        import torch

        found = objects_in(model)
        modules = [x for x in found if isinstance(x, torch.nn.Module)]
        counts = [x for x in found if isinstance(x, torch.Tensor) and not _has_gradient(x)]

        def keep() -> Callable[[], None]:
            buffers = [x for module in modules for x in module.buffers(recurse=False)]
            kept = [(x, x.clone()) for x in (*buffers, *counts)]

            def undo() -> None:
                with torch.no_grad():
                    for x, old in kept:
                        x.copy_(old)

            return undo

        return keep

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Ask torch for the gradient with respect to tensors that stand for the given ones."""
        import torch

        if _is_transformed():
            return _transformed(f, list(map(_tensor, arrays)))
        xs = list(map(_own, arrays))
        outer = _within.get() or any(map(_is_computed, arrays))
        token = _within.set(True)
        try:
            with torch.inference_mode(False), torch.enable_grad():
                value, aux = f(xs)
        finally:
            _within.reset(token)
        if not (isinstance(value, torch.Tensor) and value.requires_grad):
            raise ArgumentError(
                "cannot differentiate a value that does not depend on the model: return what torch "
                "computed, without .item() or .detach()"
            )
        grads = torch.autograd.grad(value, xs, allow_unused=True, create_graph=outer)
        if not outer:  # what hangs on a graph keeps all of its arrays alive
            value, aux = value.detach(), _with_tensors(aux, _detached)
        return (value, aux), once(xs, grads)


def _is_transformed() -> bool:
    """Tell whether this is within torch.func.grad or vmap, which torch.autograd.grad ignores."""
    import torch

    looked: Any = getattr(torch._C, "_functorch", None)  # there is no public way to ask
    return looked is not None and looked.peek_interpreter_stack() is not None


def _transformed(f: Differentiable, xs: Arrays) -> tuple[tuple[Any, Any], Arrays]:
    """Ask torch.func, whose aux may be nothing but tensors."""
    import torch

    kept: list[Any] = []

    def of_tensors(xs: Arrays) -> tuple[Any, list[Any]]:
        value, aux = f(xs)
        kept.append(aux)
        return value, [x for x in flatten(aux, "aux")[0] if isinstance(x, torch.Tensor)]

    grads, (value, tensors) = torch.func.grad_and_value(of_tensors, has_aux=True)(xs)
    rest = iter(tensors)
    return (value, _with_tensors(kept[0], lambda _: next(rest))), grads


def _tensor(x: Any) -> Any:
    """Return an array of any library as a tensor."""
    import torch

    if isinstance(x, torch.Tensor):
        return x
    adapter = adapter_of(torch.Tensor)
    assert adapter is not None
    return adapter.array(viewed(x))


def _is_computed(x: Any) -> bool:
    """Tell whether a tensor is itself a result that somebody may differentiate."""
    return bool(getattr(x, "requires_grad", False)) and not x.is_leaf


def _has_gradient(x: Any) -> bool:
    return bool(x.is_floating_point() or x.is_complex())


def _own(x: Any) -> Any:
    """Return a tensor of the same memory, one for each place, as two places need not be tied.

    A Parameter is returned itself: modules hold on to it.
    """
    import torch

    x = _tensor(x)
    if isinstance(x, torch.nn.Parameter):
        return x
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


def _with_tensors(aux: Any, change: Callable[[Any], Any]) -> Any:
    """Return a nest with its tensors changed."""
    import torch

    leaves, _ = flatten(aux, "aux")
    new = [change(x) if isinstance(x, torch.Tensor) else x for x in leaves]
    held = [i for i, x in enumerate(new) if x is not leaves[i]]
    return rebuild(aux, program(outline(aux, "aux").nodes, held), new, False)


def _detached(x: Any) -> Any:
    return x.detach() if x.requires_grad else x
