"""Paths as users write them: a tuple of keys, or the same keys joined by "/"."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from ..errors import ArgumentError, StructureError
from .outline import Path

Place = str | tuple[Hashable, ...]
T = TypeVar("T")


def text_of(path: Path) -> str:
    r"""Write a path as names joined by "/"; a "/" or "\" inside a name is escaped by "\"."""
    return "/".join(re.sub(r"([\\/])", r"\\\1", str(name)) for name in path)


def names_in(text: str) -> list[str]:
    r"""Return the names in a written path; `\/` and `\\` stand for a "/" and a "\" in a name."""
    names = [""]
    for piece in re.findall(r"\\.|.", text, re.DOTALL):
        if piece == "/":
            names.append("")
        else:
            names[-1] += piece.removeprefix("\\") if len(piece) == 2 else piece
    return names if text else []


def found(place: Place, paths: Iterable[Path], what: str) -> Path:
    """Return the one of `paths` that a user means.

    Raises:
        StructureError: none of them is meant.
        ArgumentError: what was given is no path.
    """
    known = list(paths)
    if isinstance(place, tuple):
        if place in known:
            return place
    elif isinstance(place, str):
        for path in known:
            if text_of(path) == place:
                return path
    else:
        raise ArgumentError(f'a path is a tuple of keys or a string like "enc/0/w", got {place!r}')
    raise StructureError(f"{what} has nothing at {place!r}")


def name_meant(part: Any, names: Iterable[Hashable], written: bool) -> Hashable | None:
    """Return the one of `names` that one step of a path means; None if there is none.

    A step of a written path is text, and so finds an int key too.
    """
    known = list(names)
    if not written:
        return part if part in known else None
    return next((name for name in known if str(name) == part), None)
