"""What the package asks of a container, and the containers that array libraries bring along.

The rooms above know dicts, lists, tuples and what users or JAX register; a library's modules and
wrappers are described in this room, in the file of the library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, NamedTuple

from .caching import cached

NameTuple = tuple[Hashable, ...]


class Level(NamedTuple):
    """One container taken apart: its children, their names, and how names are written as code.

    dotted: children are attributes. ordered: children may also be matched by position.
    untrained: names of children that exist but are left alone, so that a gradient there is ignored.
    optional: names may be left out of a gradient tree of this kind, and of one for this model.
    left: names of children that are not trained although they are arrays.
    """

    children: Sequence[Any]
    names: NameTuple
    dotted: bool = False
    ordered: bool = False
    untrained: tuple[str, ...] = ()
    optional: bool = False
    left: Collection[Hashable] = ()


class Kind(NamedTuple):
    """How one class of containers is taken apart, rebuilt, and written into where that can be.

    `get(x, names)` is the quick half of `open`, for names that are known. `build` returns a
    container like `x` with other children; `write` puts them into `x` and returns it.
    """

    open: Callable[[Any], Level]
    get: Callable[[Any, NameTuple], Sequence[Any]]
    build: Callable[[Any, NameTuple, list[Any]], Any]
    write: Callable[[Any, NameTuple, Sequence[Any]], Any] | None = None


LIBRARIES = {
    "flax": "flax_", "mlx": "mlx_", "penzai": "penzai_", "tensorflow": "tensorflow_",
    "torch": "torch_modules",
}  # fmt: skip


@cached
def container_of(cls: type) -> Kind | None:
    """Return how a library's containers are taken apart, found from the packages of a class."""
    for base in cls.__mro__:
        module = LIBRARIES.get(base.__module__.partition(".")[0])
        if module is not None:
            kind: Kind | None = importlib.import_module(f".{module}", __package__).container(cls)
            if kind is not None:
                return kind
    return None


def as_sequence(x: Any) -> Level:
    """Take apart a sequence by its positions."""
    return Level(x, tuple(range(len(x))), ordered=True)


def keyed(x: Any, names: NameTuple) -> Sequence[Any]:
    """Return the items of a container with these names."""
    return [x[name] for name in names]


def attributes(x: Any, names: NameTuple) -> Sequence[Any]:
    """Return the attributes of an object with these names."""
    return [getattr(x, str(name)) for name in names]
