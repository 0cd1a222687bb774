"""What is asked of a library that differentiates: writing a backend is writing two methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ..arrays import Adapter, adapter_of, describe
from ..arrays.needs import need
from ..arrays.numbers import is_complex, is_trainable_dtype
from ..errors import ArgumentError, ShapeError
from ..state import State
from ..tree import flatten, outline, program, rebuild
from .parts import Parts

Arrays = Sequence[Any]
Differentiable = Callable[[Arrays], tuple[Any, Any]]

BACKENDS: list[type[Backend]] = []


@dataclass(frozen=True)
class Backend:
    """Base class of the backends: how one library differentiates.

    A new one is a subclass with two methods, `knows` and `differentiate`; all the rest follows. It
    is found from a model's arrays as soon as its class is made.

    library: the module that must be there, None for none. install: what pip is asked for.
    tied: what the library gives for an array that stands at several places. "parts": at each place
    the contribution of that place. "total": at each place the whole, of which only the first is
    kept, so that `update`, which adds what it finds at tied places, is right with both.
    in_place: whether `train` writes into the caller's model, as those who use the library expect.
    carries: whether a function may write into arrays of the model, such as running means; it is
    given a copy, and what it wrote there is then put into the model.
    """

    library: ClassVar[str | None] = None
    install: ClassVar[str] = ""
    tied: ClassVar[Literal["parts", "total"]] = "parts"
    in_place: ClassVar[bool] = False
    carries: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # One made again, as a cell of a notebook does, takes the place of the one before.
        mine = (cls.__module__, cls.__qualname__)
        BACKENDS[:] = [b for b in BACKENDS if (b.__module__, b.__qualname__) != mine] + [cls]

    def __post_init__(self) -> None:
        if self.library is not None:
            name = type(self).__name__
            need(self.library, f"differentiate with {name}", self.install or self.library)

    @classmethod
    def knows(cls, kind: type) -> bool:
        """Tell whether a class is one of the library's: of its arrays, or its containers.

        It is asked about every class of a model, and must not import the library for others.
        """
        return False

    def differentiate(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        """Return what `f(arrays)` returns, and the gradient of the first part of that.

        Args:
            f: takes a list of arrays, and returns `(value, aux)`: one number of the library, and
                anything else, which only has to be handed on.
            arrays: those of the model that are trained, one for each place; if the backend was
                named and not found, they may be another library's (see `viewed`).

        Returns:
            `((value, aux), gradients)`: for each array its gradient, None where there is none;
            complex ones as descent directions (df/dx + i df/dy).
        """
        raise NotImplementedError(f"{type(self).__name__} defines no differentiate(f, arrays)")

    def value_and_gradient(
        self, f: Any, model: Any, *data: Any, has_aux: bool = False, state: State | None = None
    ) -> tuple[Any, Any]:
        """Return the value of `f(model, *data)`, and its gradients nested like the model.

        With a state, only what is trained and not frozen in it is differentiated.
        """
        parts = Parts(model, state)

        def of_arrays(new: Arrays) -> tuple[Any, Any]:
            own = parts.model_with(new)
            value, aux = checked(f(own, *data), has_aux)
            return value, (aux, parts.rest_of(own) if self.carries else None)

        (value, (aux, now)), grads = self._differentiated(of_arrays, parts.arrays)
        if self.carries:
            parts.write_rest(now)
        return ((value, aux) if has_aux else value), parts.nested(grads)

    def watch(self, model: Any) -> Callable[[], Callable[[], None]]:
        """Return a function that keeps what a loss may write into a model beside its parameters.

        What that returns undoes what was written since.
        """

        def keep() -> Callable[[], None]:
            kept, structure = flatten(model)
            restore = self.kept(kept)

            def undo() -> None:
                now, shape = flatten(model)
                if self.carries and shape == structure:
                    changed = {i for i, x in enumerate(kept) if x is not now[i]}
                    rebuild(model, program(outline(model).nodes, changed), kept, True)
                restore()

            return undo

        return keep

    def kept(self, leaves: Sequence[Any]) -> Callable[[], None]:
        """Keep the numbers of those leaves that are no parameters; return what writes them back."""
        found = [(x, adapter) for x in leaves if (adapter := _beside(x)) is not None]
        written = [(x, adapter, np.array(adapter.view(x))) for x, adapter in found]

        def restore() -> None:
            for x, adapter, old in written:
                adapter.write(x, old)

        return restore

    def compiled(self, f: Any) -> Callable[..., tuple[Any, Any]]:
        """Return `(state, model, *data) -> (value, gradients)`, to be called many times."""

        def value_and_gradient(state: State, model: Any, *data: Any) -> tuple[Any, Any]:
            return self.value_and_gradient(f, model, *data, state=state)

        return value_and_gradient

    def _differentiated(self, f: Differentiable, arrays: Arrays) -> tuple[tuple[Any, Any], Arrays]:
        if not arrays:  # all of it is frozen
            return f([]), []
        value, grads = self.differentiate(f, arrays)
        return value, once(arrays, grads) if self.tied == "total" else grads


def nothing() -> None:
    """There is nothing to undo."""


def _beside(x: Any) -> Adapter | None:
    """Return the adapter of an array that can be written and is no parameter, None for others."""
    adapter = adapter_of(type(x))
    if adapter is None or not adapter.may_write(x):
        return None
    trained = is_trainable_dtype(adapter.dtype(x)) and adapter.is_parameter(x)
    return None if trained else adapter


def once(arrays: Arrays, grads: Arrays) -> list[Any]:
    """Put None at the repeats of an array: the total that a library gives at each counts once."""
    seen: set[int] = set()
    kept = []
    for x, g in zip(arrays, grads, strict=True):
        kept.append(None if id(x) in seen else g)
        if g is not None:
            seen.add(id(x))
    return kept


def comes_from(kind: type, *libraries: str) -> bool:
    """Tell whether a class or one above it was made in one of these packages."""
    return any(base.__module__.partition(".")[0] in libraries for base in kind.__mro__)


def viewed(x: Any) -> Any:
    """Return an array of any library as a NumPy array, of the same memory where that can be."""
    adapter = adapter_of(type(x))
    return x if adapter is None else np.asarray(adapter.view(x))


def checked(out: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return what a loss returned as `(value, aux)`; raise if the value is not one real number."""
    if has_aux and not (isinstance(out, tuple) and len(out) == 2):
        raise ArgumentError(
            f"with has_aux=True the function must return (value, aux), got {_shown(out)}"
        )
    value: Any
    value, aux = out if has_aux else (out, None)
    adapter = adapter_of(type(value))
    if adapter is None:
        number = isinstance(value, int | float | np.floating | np.integer)
        if number and not isinstance(value, bool):
            return float(value), aux
        cure = "; pass has_aux=True for (value, aux)" if isinstance(value, tuple) else ""
        raise ArgumentError(
            f"cannot differentiate a {_shown(value)}: the function must return one number{cure}"
        )
    if tuple(value.shape) != ():
        raise ShapeError(
            f"cannot differentiate {describe(value)}: the function must return one number, such as "
            "a mean or a sum"
        )
    dtype = adapter.dtype(value)
    if is_complex(dtype) or not is_trainable_dtype(dtype):
        raise ArgumentError(
            f"cannot differentiate {describe(value)}: the function must return a real floating "
            "number"
        )
    return value, aux


def _shown(x: Any) -> str:
    if adapter_of(type(x)) is not None:
        return describe(x)
    return f"tuple of {len(x)}" if isinstance(x, tuple) else type(x).__name__
