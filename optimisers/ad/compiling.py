"""Gradients by JAX, compiled once for each structure of model and data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from ..arrays import adapter_of, describe
from ..arrays.numbers import is_wide, precision, x64_enabled
from ..arrays.ops import is_traced_type
from ..errors import ArgumentError
from ..state import State
from .backend import Arrays, Differentiable, checked
from .parts import Parts

Descent = Callable[[Differentiable, Arrays], tuple[tuple[Any, Any], Arrays]]


class Compiled:
    """`(state, model, *data) -> (value, gradients)` by a program that is compiled when it is new.

    Arrays, and numbers in the data, are arguments of the program. All else is a constant of it: the
    names in both, strings, flags, functions, and numbers in the model.
    """

    def __init__(self, descent: Descent, f: Callable[..., Any], carries: bool) -> None:
        self._descent, self._f, self._carries = descent, f, carries
        self._programs: dict[Any, tuple[Callable[..., Any], bool]] = {}

    def __call__(self, state: State, model: Any, *data: Any) -> tuple[Any, Any]:
        """Return the value and the gradients nested like the model."""
        parts = Parts(model, state)
        held = _Split(parts.rest)
        leaves, structure = jax.tree.flatten(data)
        given = _Split(leaves, numbers=True)
        # The model's constants by identity, as they need not be comparable; its program holds them.
        fixed = _fixed(model) if self._carries else None
        key = (parts.structure, fixed, parts.at, held.at, tuple(map(id, held.constants)),
               structure, given.at, given.key())  # fmt: skip
        if key not in self._programs:
            self._programs[key] = self._program(parts, held, structure, given)
        program, wide = self._programs[key]
        xs = list(map(native, parts.arrays))
        with precision(wide), explained(parts.arrays):
            out, grads = program(xs, held.arrays, given.arrays)
        (value, now), grads = home(out, grads, parts.arrays, wide, np.asarray)
        if now is not None:
            parts.write_rest(now)
        return value, parts.nested(grads)

    def _program(
        self, parts: Parts, held: _Split, structure: Any, given: _Split
    ) -> tuple[Callable[..., Any], bool]:
        """Return a program, and whether it computes in 64 bits."""

        def value_and_gradient(xs: Any, rest: Any, arrays: Any) -> Any:
            data = jax.tree.unflatten(structure, given.filled(arrays))

            def of_arrays(new: Sequence[Any]) -> tuple[Any, Any]:
                model = parts.model_with(new, held.filled(rest))
                value, _ = checked(self._f(model, *data), False)
                return value, parts.rest_of(model) if self._carries else None

            return self._descent(of_arrays, xs) if xs else (of_arrays(xs), xs)  # if all is frozen

        wide = any(is_wide(native(x).dtype) for x in parts.arrays)
        return jax.jit(value_and_gradient), wide


class _Split:
    """Leaves that are arguments of a program, and those that are constants of it."""

    def __init__(self, leaves: Sequence[Any], numbers: bool = False) -> None:
        views = [_argument(x, numbers) for x in leaves]
        self.at = tuple(i for i, x in enumerate(views) if x is not None)
        self.arrays = [views[i] for i in self.at]
        self.constants = tuple(x for x, view in zip(leaves, views, strict=True) if view is None)
        self._leaves = [x if view is None else None for x, view in zip(leaves, views, strict=True)]

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the leaves, with these arrays where there were arrays."""
        leaves = list(self._leaves)
        for i, x in zip(self.at, arrays, strict=True):
            leaves[i] = x
        return leaves

    def key(self) -> tuple[Any, ...]:
        """Return what tells these constants from others; raise if nothing does."""
        for x in self.constants:
            if not _has_value(x):
                raise ArgumentError(
                    f"cannot compile a step for a batch that holds {describe(x)}: JAX takes arrays "
                    "and numbers, in containers that it knows (jax.tree_util.register_dataclass)"
                )
        return tuple((type(x), x) for x in self.constants)


def _has_value(x: Any) -> bool:
    """Tell whether an object may be a constant of a program.

    One that only its identity tells from others would be compiled for anew in each batch.
    """
    kind: Any = type(x)
    try:
        hash(x)
    except TypeError:
        return False
    return callable(x) or kind.__hash__ is not object.__hash__


def _argument(x: Any, numbers: bool) -> Any:
    """Return a leaf as an argument of a program; None if it is a constant of it."""
    adapter = adapter_of(type(x))
    if adapter is None:
        is_number = isinstance(x, int | float | complex | np.number) and not isinstance(x, bool)
        return x if numbers and is_number else None
    dtype = adapter.dtype(x)
    # Text and objects are arrays for NumPy alone; a key of JAX has a dtype that is not NumPy's.
    strange = isinstance(dtype, np.dtype) and dtype.kind in "OSUMm"
    return None if strange else adapter.view(x)


def _fixed(model: Any) -> Any:
    """Return what is not an array in a module that may be written, such as `deterministic`."""
    structure = jax.tree.structure(model)
    try:
        hash(structure)
    except TypeError:
        return str(structure)
    return structure


def native(x: Any) -> Any:
    """Return an array of any library as JAX takes it."""
    if isinstance(x, jax.Array):
        return x
    adapter = adapter_of(type(x))
    assert adapter is not None
    return adapter.view(x)


@contextmanager
def explained(arrays: Arrays) -> Iterator[None]:
    """Tell those whose arrays are NumPy's why a function written with NumPy cannot be used."""
    try:
        yield
    except jax.errors.TracerArrayConversionError as error:
        if any(isinstance(x, np.ndarray) for x in arrays):
            error.add_note(
                "The arrays of the model are NumPy's, which JAX differentiates: write the function "
                "with jax.numpy, or name another backend, such as ad=AutoAutograd()."
            )
        raise


def home(
    value: Any, grads: Arrays, arrays: Arrays, wide: bool, numpy: Callable[[Any], Any]
) -> tuple[Any, Arrays]:
    """Bring results to where the arrays are: gradients of NumPy arrays are NumPy arrays.

    `numpy` makes them: with a copy, where users may write into them.

    64-bit results leave JAX outside its x64 mode, as it would narrow them in the next thing done.
    """
    if wide and not x64_enabled():
        value = jax.tree.map(_kept_wide, value)
    pairs = zip(arrays, grads, strict=True)
    return value, [numpy(g) if _is_numpy(x, g) else g for x, g in pairs]


def _is_numpy(x: Any, g: Any) -> bool:
    return isinstance(x, np.ndarray) and not is_traced_type(type(g))


def _kept_wide(x: Any) -> Any:
    if isinstance(x, jax.Array) and not is_traced_type(type(x)) and is_wide(x.dtype):
        return np.asarray(x)
    return x
