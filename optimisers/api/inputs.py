"""The arrays of one call, checked before anything is computed: parameters and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import jax
import numpy as np

from ..arrays import adapter_of, describe
from ..arrays.numbers import fits
from ..arrays.ops import is_traced_type
from ..errors import ArgumentError, DeviceError, DtypeError, ShapeError, StateError, StructureError
from ..state import Layout, Unit

shape_of, dtype_of = attrgetter("shape"), attrgetter("dtype")


def is_jax_type(cls: type) -> bool:
    """Tell whether objects of a class go into a program as they are."""
    return issubclass(cls, jax.Array) or is_traced_type(cls)


def parameters(
    layout: Layout, unit: Unit, xs: Sequence[Any], inside: Sequence[bool]
) -> tuple[Any, ...]:
    """Return a unit's parameters as programs take them; raise if they are not what was set up.

    Where only some of them are in the part that is updated, zeros stand in for the others.
    """
    if not all(inside):
        xs = [
            x if here else np.zeros(shape, unit.spec.dtype)
            for x, here, shape in zip(xs, inside, unit.spec.shapes, strict=True)
        ]
    views = tuple(xs) if _all_jax(xs) else tuple(map(_view, xs))
    if any(view is None for view in views):
        _explain(layout, unit, xs, views)
    if unit.host and not any(map(is_traced_type, set(map(type, views)))):
        views = tuple(np.asarray(view) for view in views)
    spec = unit.spec
    if tuple(map(shape_of, views)) != spec.shapes or any(
        str(d) != spec.dtype for d in set(map(dtype_of, views))
    ):
        _explain(layout, unit, xs, views)
    _check_alive(layout, unit, views)
    return views


def _all_jax(xs: Sequence[Any]) -> bool:
    return all(map(is_jax_type, set(map(type, xs))))


def _view(x: Any) -> Any:
    adapter = adapter_of(type(x))
    return None if adapter is None else adapter.view(x)


def _explain(layout: Layout, unit: Unit, xs: Sequence[Any], views: Sequence[Any]) -> None:
    for i, x, view, shape in zip(unit.params, xs, views, unit.spec.shapes, strict=True):
        code, wanted = layout.params[i].codes[0], f"{unit.spec.dtype}{list(shape)}"
        if view is None:
            raise StateError(
                f"the state does not fit {code}: got {type(x).__name__}, expected {wanted}"
            )
        if tuple(view.shape) != shape:
            raise StateError(f"the state does not fit {code}: got {describe(x)}, expected {wanted}")
        if str(view.dtype) != unit.spec.dtype:
            narrowed = unit.spec.wide and isinstance(x, jax.Array)
            cure = (
                "; jax narrows 64-bit arrays outside its x64 mode: call update outside jit, or set "
                "jax_enable_x64"
                if narrowed
                else "; a changed dtype needs a new setup"
            )
            raise DtypeError(
                f"the state does not fit {code}: got {describe(x)}, expected {wanted}{cure}"
            )


def _check_alive(layout: Layout, unit: Unit, arrays: Sequence[Any]) -> None:
    if not any(issubclass(t, jax.Array) and not is_traced_type(t) for t in set(map(type, arrays))):
        return
    for i, x in zip(unit.params, arrays, strict=True):
        if isinstance(x, jax.Array) and not is_traced_type(type(x)) and x.is_deleted():
            raise StateError(
                f"{layout.params[i].codes[0]} was deleted: its memory was given to an update; "
                "use the model that the last call returned"
            )


def gradients(layout: Layout, unit: Unit, gs: Sequence[Any]) -> tuple[Any, ...]:
    """Return a unit's gradients as JAX or NumPy arrays, None where there is none."""
    if not _all_jax(gs) or any(str(d) == "[('float0', 'V')]" for d in set(map(dtype_of, gs))):
        gs = tuple(
            gradient(g, layout.params[i].codes[0]) for i, g in zip(unit.params, gs, strict=True)
        )
    return tuple(gs)


def gradient(g: Any, code: str) -> Any:
    """Return one gradient as a dense JAX or NumPy array, or None where there is none."""
    if g is None:
        return None
    adapter = adapter_of(type(g))
    if adapter is not None:
        try:
            return adapter.gradient(g)
        except (DeviceError, DtypeError) as error:
            raise type(error)(f"cannot use the gradient of {code}: {error}") from None
    if isinstance(g, int | float | complex | np.number) and not isinstance(g, bool):
        return np.asarray(g)
    raise ArgumentError(
        f"cannot use {type(g).__name__} as the gradient of {code}; "
        "expected an array, a number, or None where there is no gradient"
    )


def check_gradients(layout: Layout, unit: Unit, gs: Sequence[Any]) -> None:
    """Raise where a gradient's shape or dtype is not one for its parameter."""
    spec = unit.spec
    known = [g for g in gs if g is not None]
    full = len(known) == len(gs)
    right = full and tuple(map(shape_of, known)) == spec.shapes
    if right and all(fits(d, spec.dtype) for d in set(map(dtype_of, known))):
        _check_alive_gradients(layout, unit, gs)
        return
    for i, g, shape in zip(unit.params, gs, spec.shapes, strict=True):
        if g is not None:
            check_one(g, layout.params[i].codes[0], shape, spec.dtype)
    _check_alive_gradients(layout, unit, gs)


def check_one(g: Any, code: str, shape: tuple[int, ...], dtype: str) -> None:
    """Raise where one gradient is not one for its parameter."""
    if tuple(g.shape) != shape:
        raise ShapeError(
            f"the gradient of {code} does not fit: got {describe(g)}, expected shape {list(shape)}"
        )
    if not fits(g.dtype, dtype):
        cure = "; take its real part" if _is_complex(g.dtype) else ""
        raise DtypeError(
            f"the gradient of {code} does not fit: got {describe(g)}, expected {dtype}{cure}"
        )


def _is_complex(dtype: Any) -> bool:
    return getattr(dtype, "kind", "") == "c"


def _check_alive_gradients(layout: Layout, unit: Unit, gs: Sequence[Any]) -> None:
    for i, g in zip(unit.params, gs, strict=True):
        if isinstance(g, jax.Array) and not is_traced_type(type(g)) and g.is_deleted():
            raise StateError(f"the gradient of {layout.params[i].codes[0]} was deleted or donated")


def check_pruned(prunes: Sequence[tuple[int, str]], leaves: Sequence[Any]) -> None:
    """Raise where an array stands for a whole container; None there means no gradient below."""
    for i, code in prunes:
        g = leaves[i]
        if g is None:
            continue
        adapter = adapter_of(type(g))
        if adapter is None or adapter.gradient(g) is not None:
            raise StructureError(
                f"the gradient does not fit at {code}: got {describe(g)}, expected a container; "
                "put None where there is no gradient"
            )
