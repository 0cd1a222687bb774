"""Places chosen by a pattern: a glob over names, a regular expression, a predicate, or a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any

from ..errors import ArgumentError, StructureError
from .outline import Path
from .paths import text_of

Where = str | re.Pattern[str] | tuple[Hashable, ...] | Callable[..., Any] | None


NAME = r"(?:[^/\\]|\\.)*"  # within one name: what is escaped by "\\" belongs to it


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """Translate a glob to a regular expression: `*` within one name, `**` any number of names.

    What matches a branch takes everything below it.
    """
    parts = pattern.split("/")
    regex = ""
    for i, part in enumerate(parts):
        if part == "**":
            regex += rf"(?:{NAME}/)*" if i < len(parts) - 1 else r".*"
            continue
        names = "".join(_glob_piece(piece) for piece in re.split(r"(\\.|[*?])", part) if piece)
        regex += names + ("/" if i < len(parts) - 1 else "")
    return re.compile(rf"{regex.removesuffix('/')}(?:/.*)?", re.DOTALL)


def _glob_piece(piece: str) -> str:
    if piece == "*":
        return NAME
    if piece == "?":
        return r"(?:[^/\\]|\\.)"
    return re.escape(piece)


def matcher(where: Where) -> Callable[[Path, Any], bool]:
    """Return a predicate `(path, x)` for a pattern, whatever its kind.

    Raises:
        ArgumentError: `where` is none of the kinds of pattern.
    """
    if where is None:
        return lambda path, x: True
    if isinstance(where, str):
        regex = compiled(where)
        return lambda path, x: regex.fullmatch(text_of(path)) is not None
    if isinstance(where, re.Pattern):
        return lambda path, x: where.search(text_of(path)) is not None
    if isinstance(where, tuple):
        return lambda path, x: path[: len(where)] == where
    if callable(where):
        return lambda path, x: bool(where(path, x))
    raise ArgumentError(
        f'cannot select by {type(where).__name__}; give a pattern like "enc/**", a compiled '
        "regular expression, a path, or a function (path, x) -> bool"
    )


def chosen(where: Where, places: Iterable[tuple[int, Iterable[Path], Any]]) -> list[int]:
    """Return the indices of the places that a pattern selects, tied ones by any of their paths.

    Raises:
        StructureError: nothing is selected.
    """
    fits = matcher(where)
    found = [i for i, paths, x in places if any(fits(path, x) for path in paths)]
    if not found:
        raise StructureError(f"{where!r} selects no parameter of this state")
    return found
