"""The parameters of a model: which leaves are trained, and which of them are one."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Adapter, adapter_of, describe
from ..arrays.numbers import is_trainable_dtype
from ..arrays.ops import is_traced_type
from ..errors import ArgumentError, OptimiserWarning, StructureError
from ..state import Param, State
from ..state.build import check_dtype
from ..tree import Outline, Path, flatten
from ..tree.paths import Place, found as found_path

Ties = State | Iterable[Sequence[Place]] | None


class Found(NamedTuple):
    """One parameter of a model, as `setup` finds it."""

    param: Param
    x: Any
    adapter: Adapter


def parameters(
    places: Outline, leaves: Sequence[Any], ties: Ties = None, warn: bool = True
) -> tuple[list[Found], frozenset[Path]]:
    """Find the parameters among the leaves of a model; and which floating arrays are left alone.

    Args:
        places: the model's outline.
        leaves: its leaves.
        ties: as in `setup`.
        warn: whether to warn about what is not trained but might have been meant.

    Raises:
        StructureError: a declared tie is not one parameter.
        DtypeError: a dtype that cannot be computed.
        DeviceError: a device that JAX does not share.
    """
    trained: dict[int, Adapter] = {}
    untrained = set()
    for i, x in enumerate(leaves):
        adapter = adapter_of(type(x))
        if adapter is None:
            if warn:
                _warn_about(x, places.codes[i])
        elif is_trainable_dtype(adapter.dtype(x)):
            if i in places.left or not adapter.is_parameter(x):
                untrained.add(places.paths[i])
            else:
                trained[i] = adapter
    groups: dict[Any, list[int]] = {}
    declared = None if ties is None else _declared(places, leaves, trained, ties)
    for i, adapter in trained.items():
        key = adapter.identity(leaves[i]) if declared is None else declared.get(i, i)
        groups.setdefault(key, []).append(i)
    return [_found(places, leaves, group) for group in groups.values()], frozenset(untrained)


def _declared(
    places: Outline, leaves: Sequence[Any], trained: dict[int, Adapter], ties: Ties
) -> dict[int, Any]:
    """Return for each leaf in a declared tie the name of its group."""
    if isinstance(ties, State):
        at = ties._at
        ties = [
            [path[len(at) :] for path in param.paths if path[: len(at)] == at]
            for param in ties._box.layout.params
        ]
    index = {path: i for i, path in enumerate(places.paths) if i in trained}
    groups: dict[int, Any] = {}
    for tie in ties or ():
        if isinstance(tie, str) or not isinstance(tie, Sequence):
            raise ArgumentError(f"ties takes groups of paths, got {tie!r} for a group")
        members = [index[found_path(place, index, "the model, for ties,")] for place in tie]
        for i in members:
            _check_tie(places, leaves, members[0], i)
        # Two groups with a place in common are one.
        name = min([*members, *(groups[i] for i in members if i in groups)], default=None)
        joined = {groups[i] for i in members if i in groups}
        groups.update({i: name for i, group in groups.items() if group in joined})
        groups.update(dict.fromkeys(members, name))
    return groups


def _check_tie(places: Outline, leaves: Sequence[Any], first: int, i: int) -> None:
    a, b = leaves[first], leaves[i]
    codes = f"{places.codes[first]} and {places.codes[i]}"
    if a is b:
        return
    if describe(a) != describe(b) or adapter_of(type(a)) is not adapter_of(type(b)):
        raise StructureError(f"cannot tie {codes}: they are {describe(a)} and {describe(b)}")
    if is_traced_type(type(a)) or is_traced_type(type(b)):
        return  # their values are not known; that they are tied is what was said
    adapter = adapter_of(type(a))
    assert adapter is not None
    if not np.array_equal(adapter.view(a), adapter.view(b), equal_nan=True):
        raise StructureError(f"cannot tie {codes}: their values differ; put one array at both")


def _found(places: Outline, leaves: Sequence[Any], indices: Sequence[int]) -> Found:
    x = leaves[indices[0]]
    adapter = adapter_of(type(x))
    assert adapter is not None
    adapter.check(x, places.codes[indices[0]])
    dtype = adapter.dtype(x)
    check_dtype(dtype, places.codes[indices[0]])
    param = Param(
        tuple(places.paths[i] for i in indices),
        tuple(places.codes[i] for i in indices),
        tuple(int(n) for n in x.shape),
        str(dtype),
        adapter.name,
    )
    return Found(param, x, adapter)


def warn_of_nothing() -> None:
    """Warn that a model has nothing to train."""
    warnings.warn(
        "nothing in the model is trainable: it holds no floating array that is reached; "
        "make numbers arrays with np.asarray(x, float), and register classes with "
        "optimisers.register(cls)",
        OptimiserWarning,
        stacklevel=3,
    )


def _warn_about(x: Any, code: str) -> None:
    if isinstance(x, np.inexact) or type(x).__name__ == "bfloat16":
        warnings.warn(
            f"{code} is a NumPy scalar, which is not trained; make it an array with np.asarray(x)",
            OptimiserWarning,
            stacklevel=4,
        )
    elif _holds_arrays(x):
        warnings.warn(
            f"{code} is a {type(x).__name__} that holds arrays, which are not trained; "
            f"register its class with optimisers.register({type(x).__name__})",
            OptimiserWarning,
            stacklevel=4,
        )


def _holds_arrays(x: Any) -> bool:
    if isinstance(x, type) or (callable(x) and not hasattr(x, "__dict__")):
        return False
    try:
        return any(map(_is_trainable, flatten(_inside(x))[0]))
    except Exception:  # noqa: BLE001 - an object may be as odd as it likes; it is left alone anyway
        return False


def _inside(x: Any) -> Any:
    if isinstance(x, Mapping):
        return dict(x)
    if isinstance(x, list | tuple | set | frozenset | deque):
        return list(x)
    return dict(getattr(x, "__dict__", {}))


def _is_trainable(leaf: Any) -> bool:
    adapter = adapter_of(type(leaf))
    return adapter is not None and is_trainable_dtype(adapter.dtype(leaf))
