"""The static part of a state: which parameters there are, where, and in which units they are kept.

No hyper-parameter and no array is in here, so that it can be compared by identity: equal layouts
are one object as long as one of them lives.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..tree.outline import Path
from .spec import Spec


@dataclass(frozen=True)
class Param:
    """One parameter: every place where it stands (more than one if tied), and what it is there."""

    paths: tuple[Path, ...]
    codes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    library: str
    frozen: bool = False


class Place(NamedTuple):
    """Where parameters live: a number for each device or sharding of a model; is it cut there."""

    number: int = 0
    sharded: bool = False


@dataclass(frozen=True)
class Unit:
    """Parameters that share a program: `params` are indices into the layout's."""

    spec: Spec
    params: tuple[int, ...]
    host: bool
    place: Place

    def __reduce__(self) -> Any:
        return Unit, (self.spec, self.params, self.host, self.place)

    @functools.cached_property
    def arrays(self) -> int:
        """How many arrays the unit holds: hyper-parameters, scalar tables, moments."""
        form = self.spec.form
        return 1 + len(form.tables) + form.moments * (1 if self.spec.packed else len(self.params))


@dataclass(frozen=True, eq=False)
class Layout:
    """All parameters of a state, the units they are kept in, and what else the model held.

    untrained: places of floating arrays that are not trained. skeleton: the containers and leaves
    of the model as `(path, name of the class)`, for looking at the state as a tree.
    """

    params: tuple[Param, ...]
    units: tuple[Unit, ...]
    untrained: frozenset[Path] = frozenset()
    skeleton: tuple[tuple[Path, str], ...] = ()
    plans: OrderedDict[Any, Any] = field(default_factory=OrderedDict, repr=False)
    recent: list[Any] = field(default_factory=lambda: [None], repr=False)
    lock: Any = field(default_factory=threading.Lock, repr=False)

    @property
    def content(self) -> tuple[Hashable, ...]:
        """What makes two layouts equal."""
        return self.params, self.units, self.untrained, self.skeleton

    def __hash__(self) -> int:
        cached = self.__dict__.get("_hash")
        if cached is None:
            cached = hash(self.content)
            object.__setattr__(self, "_hash", cached)
        return int(cached)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Layout)
            and hash(self) == hash(other)
            and self.content == other.content
        )

    def __reduce__(self) -> Any:
        return interned, self.content

    @property
    def places(self) -> Mapping[Path, tuple[int, int]]:
        """For each path the parameter that stands there, and which of its places that is."""
        cached: dict[Path, tuple[int, int]] | None = self.__dict__.get("_places")
        if cached is None:
            cached = {p: (i, j) for i, q in enumerate(self.params) for j, p in enumerate(q.paths)}
            object.__setattr__(self, "_places", cached)
        return cached

    @functools.cached_property
    def live(self) -> tuple[tuple[bool, ...], ...]:
        """For each unit, which of its parameters are not frozen."""
        return tuple(tuple(not self.params[i].frozen for i in u.params) for u in self.units)

    @functools.cached_property
    def codes(self) -> tuple[tuple[str, ...], ...]:
        """For each unit, where its parameters are, as code."""
        return tuple(tuple(self.params[i].codes[0] for i in u.params) for u in self.units)

    @functools.cached_property
    def is_quick(self) -> bool:
        """Whether each parameter can be moved by itself in every step, from leaf to leaf."""
        specs = [unit.spec for unit in self.units]
        alone = all(len(p.paths) == 1 and not p.frozen for p in self.params)
        if not specs or not alone or len({unit.host for unit in self.units}) > 1:
            return False
        return not any(spec.requires or spec.every_call or spec.wide for spec in specs)

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether JAX can flatten such a model: not where keys cannot be sorted, or nests are deep.

        It must not even be tried there, since each failure leaks some of Python's recursion depth.
        """
        names: dict[Path, list[Any]] = {}
        for path, _ in self.skeleton:
            if path:
                names.setdefault(path[:-1], []).append(path[-1])
        try:
            for siblings in names.values():
                sorted(siblings)
        except (TypeError, ValueError):
            return False
        return all(len(path) <= 100 for path in names)

    def where(self, i: int) -> tuple[int, int]:
        """Return the unit that keeps parameter `i`, and its place there."""
        cached: dict[int, tuple[int, int]] | None = self.__dict__.get("_where")
        if cached is None:
            cached = {
                p: (u, k) for u, unit in enumerate(self.units) for k, p in enumerate(unit.params)
            }
            object.__setattr__(self, "_where", cached)
        return cached[i]

    def with_frozen(self, frozen: Mapping[int, bool]) -> Layout:
        """Return a layout in which some parameters have another frozen flag."""
        params = tuple(
            replace(p, frozen=frozen[i]) if frozen.get(i, p.frozen) != p.frozen else p
            for i, p in enumerate(self.params)
        )
        return interned(params, self.units, self.untrained, self.skeleton)


_layouts: weakref.WeakValueDictionary[Any, Layout] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def interned(
    params: tuple[Param, ...],
    units: tuple[Unit, ...],
    untrained: frozenset[Path],
    skeleton: tuple[tuple[Path, str], ...],
) -> Layout:
    """Return the one layout with this content."""
    layout = Layout(params, units, untrained, skeleton)
    with _lock:
        return _layouts.setdefault(layout.content, layout)
