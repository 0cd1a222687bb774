"""State: what an optimiser carries, kept in units and looked at as a tree like the model."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import optree
from jax.core import Tracer
from optree.registry import __GLOBAL_NAMESPACE as GLOBAL_NAMESPACE

from ..errors import ArgumentError, StateError
from ..rules.reading import check_pickles, numbers_in_force
from ..tree.outline import Path, step
from .large import Results
from .layout import Layout, Unit
from .relayout import count_at, rule_at, state_at
from .show import shown


class Box:
    """What all views of one state share: the layout, and for each unit its list of arrays.

    placed: the identities of the leaves that the last `update_` put into the model. last: how they
    were found, if each is an array of JAX on one device, without a mesh. stages, kept: memory for
    the next step of small and of large parameters in host memory.
    """

    __slots__ = ("arrays", "kept", "last", "layout", "placed", "stages")

    def __init__(self, layout: Layout, arrays: list[list[Any]]) -> None:
        self.layout, self.arrays = layout, arrays
        self.placed: tuple[int, ...] = ()
        self.last: Any = None
        self.stages: list[Any] = []
        self.kept: Results = {}

    def become(self, layout: Layout, arrays: list[list[Any]]) -> None:
        """Hold something else."""
        self.layout, self.arrays, self.last, self.kept = layout, arrays, None, {}

    def rule(self, i: int) -> Any:
        """Return the rule of parameter `i`, with the numbers in force."""
        u, k = self.layout.where(i)
        return rule_at(self.layout.units[u], self.arrays[u], k)

    def count(self, i: int) -> Any:
        """Return how many steps parameter `i` has taken: an int, in a program a tracer."""
        u, k = self.layout.where(i)
        return count_at(self.layout.units[u], self.arrays[u], k)

    def state(self, i: int) -> Any:
        """Return the rule's state for parameter `i`."""
        u, k = self.layout.where(i)
        return state_at(self.layout.units[u], self.arrays[u], k)


class State:
    """The state of an optimiser, or a part of it, nested like the model.

    `state["enc"]` and `state.enc` are the part at that child; they stay connected to the whole, so
    that what is written through one (by the functions whose names end in `_`) is seen in the other.
    A part that is a parameter has:

        rule             its rule, with the hyper-parameters in force
        state            the rule's state: a pytree of arrays
        frozen           whether it is held still
        hyperparameters  the numbers in force, of schedules the present value

    It is a pytree: it passes through `jit`, `scan`, `vmap`, `pickle` and `copy.deepcopy`, and ties
    survive all of them. The order and packing of its leaves are not part of the interface.
    """

    __slots__ = ("__weakref__", "_at", "_box")
    _at: Path
    _box: Box

    def __init__(self, box: Box, at: Path = ()) -> None:
        object.__setattr__(self, "_box", box)
        object.__setattr__(self, "_at", at)

    def __getitem__(self, key: Hashable) -> State:
        at = (*self._at, key)
        if at not in _known(self._box.layout):
            names = ", ".join(map(repr, _children(self._box.layout, self._at))) or "nothing"
            raise KeyError(f"state{_code(self._at)} has no {key!r}; it has {names}")
        return State(self._box, at)

    def __getattr__(self, name: str) -> State:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            message = error.args[0]
        if name in ("rule", "state", "frozen", "hyperparameters"):  # the property raised
            message = f"state{_code(self._at)} is not a parameter; it has no {name}"
        raise AttributeError(message)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot set {name!r}: a state is changed by adjust_, freeze_, thaw_")

    def __iter__(self) -> Iterator[Hashable]:
        return iter(_children(self._box.layout, self._at))

    def __bool__(self) -> bool:
        return True  # although a parameter has no children to count

    def __len__(self) -> int:
        return len(_children(self._box.layout, self._at))

    @property
    def rule(self) -> Any:
        """The rule of this parameter, with the hyper-parameters in force."""
        return self._box.rule(self._param())

    @property
    def state(self) -> Any:
        """The rule's state for this parameter: a pytree of arrays."""
        return self._box.state(self._param())

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The numbers in force, schedules as they are at the next step; a dict of floats."""
        i, box = self._param(), self._box
        return numbers_in_force(box.rule(i), box.count(i), box.layout.params[i].dtype)

    @property
    def frozen(self) -> bool:
        """Whether this parameter is held still."""
        return self._box.layout.params[self._param()].frozen

    def _param(self) -> int:
        place = self._box.layout.places.get(self._at)
        if place is None:
            raise AttributeError(f"state{_code(self._at)} is not a parameter")
        return place[0]

    def __repr__(self) -> str:
        return shown(self._box.layout, self._at, self._box.rule)

    def __reduce__(self) -> Any:
        layout = self._box.layout
        for unit in layout.units:
            check_pickles(self._box.rule(unit.params[0]), layout.params[unit.params[0]].codes[0])
        arrays = [[_portable(a) for a in unit] for unit in self._box.arrays]
        return _restored, (layout, arrays, self._at)

    def __copy__(self) -> State:
        return copied(self)

    def __deepcopy__(self, memo: Any) -> State:
        arrays = [[_duplicate(a) for a in unit] for unit in self._box.arrays]
        return State(Box(self._box.layout, arrays), self._at)


def copied(state: State, layout: Layout | None = None) -> State:
    """Return a state that shares arrays with `state`, but nothing that can be written."""
    box = state._box
    return State(Box(layout or box.layout, [list(unit) for unit in box.arrays]), state._at)


def checked(state: Any) -> State:
    """Return a state; raise if it is something else."""
    if not isinstance(state, State):
        raise ArgumentError(f"expected a State from setup(rule, model), got {type(state).__name__}")
    return state


def check_arrays(layout: Layout, arrays: Sequence[Sequence[Any]]) -> None:
    """Raise where a state's arrays are not those of its layout: deleted, batched, narrowed."""
    for unit, held in zip(layout.units, arrays, strict=True):
        hyper, spec = held[0], unit.spec
        width = spec.template.width
        wanted = len(spec.shapes), width
        if getattr(hyper, "shape", None) != wanted:
            seen = getattr(hyper, "shape", type(hyper).__name__)
            raise StateError(
                f"the state of {layout.params[unit.params[0]].codes[0]} has hyper-parameters of "
                f"shape {seen}, expected {wanted}; a state made under jax.vmap is updated under "
                "jax.vmap"
            )
        if spec.wide and str(hyper.dtype) != "float64":
            raise StateError(
                f"the state of {layout.params[unit.params[0]].codes[0]} was narrowed to "
                f"{hyper.dtype} on its way here, as jax does outside 64-bit mode; "
                "call update outside jit, or set jax_enable_x64"
            )
        for a in held:
            if isinstance(a, jax.Array) and not isinstance(a, Tracer) and a.is_deleted():
                raise StateError(
                    f"the state of {layout.params[unit.params[0]].codes[0]} was given away "
                    "(donated or deleted); use the state that the last call returned"
                )


def _known(layout: Layout) -> dict[Path, tuple[Hashable, ...]]:
    """Return every place of the model, containers with the names of their children."""
    cached: dict[Path, tuple[Hashable, ...]] | None = layout.__dict__.get("_tree")
    if cached is None:
        names: dict[Path, list[Hashable]] = {}
        for path, _ in layout.skeleton:
            names.setdefault(path, [])
            if path:
                names[path[:-1]].append(path[-1])
        cached = {path: tuple(children) for path, children in names.items()}
        object.__setattr__(layout, "_tree", cached)
    return cached


def _children(layout: Layout, at: Path) -> tuple[Hashable, ...]:
    return _known(layout).get(at, ())


def _code(at: Path) -> str:
    return "".join(step(name, False) for name in at)


def _portable(a: Any) -> Any:
    return np.asarray(a) if isinstance(a, jax.Array) else a


def _duplicate(a: Any) -> Any:
    return a.copy() if isinstance(a, jax.Array | np.ndarray) else a


def _restored(layout: Layout, arrays: list[list[Any]], at: Path) -> State:
    from .build import stored

    held = [stored(u, list(a), False) for u, a in zip(layout.units, arrays, strict=True)]
    return State(Box(layout, held), at)


def _flatten(state: State) -> tuple[tuple[Any, ...], tuple[Layout, Path]]:
    box = state._box
    return tuple(a for unit in box.arrays for a in unit), (box.layout, state._at)


def _flatten_with_keys(state: State) -> tuple[tuple[Any, ...], tuple[Layout, Path]]:
    keys = [
        jax.tree_util.DictKey(f"unit{u}.{name}")
        for u, unit in enumerate(state._box.layout.units)
        for name in _array_names(unit)
    ]
    leaves, static = _flatten(state)
    return tuple(zip(keys, leaves, strict=True)), static


def _array_names(unit: Unit) -> list[str]:
    form, parts = unit.spec.form, 1 if unit.spec.packed else len(unit.params)
    names = ["hyper", *(f"scalars{t}" for t in range(len(form.tables)))]
    return names + [f"moments{i}.{m}" for i in range(parts) for m in range(form.moments)]


def _unflatten(static: tuple[Layout, Path], leaves: Any) -> State:
    layout, at = static
    rest = iter(leaves)
    return State(Box(layout, [[next(rest) for _ in range(u.arrays)] for u in layout.units]), at)


jax.tree_util.register_pytree_with_keys(State, _flatten_with_keys, _unflatten, _flatten)
_register: Any = optree.register_pytree_node  # its types ask for a Collection of leaves
_register(
    State,
    lambda state: (*_flatten(state), None),
    _unflatten,
    namespace=GLOBAL_NAMESPACE,
)

__all__ = ["Box", "State", "check_arrays", "checked", "copied"]
