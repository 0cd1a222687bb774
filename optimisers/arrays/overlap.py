"""Memory that two arrays share without being the same array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def overlapping(views: Sequence[Any]) -> tuple[int, int] | None:
    """Return the indices of two NumPy arrays that share memory, or None.

    Arrays that own their memory cannot overlap, so they cost next to nothing.
    """
    if all(view.flags.owndata for view in views):
        return None
    spans = sorted((*_bounds(view), i) for i, view in enumerate(views) if view.size)
    reach: list[tuple[int, int]] = []
    for begin, end, i in spans:
        reach = [(e, j) for e, j in reach if e > begin]
        for _, j in reach:
            if _share(views[i], views[j]):
                return min(i, j), max(i, j)
        reach.append((end, i))
    return None


def _bounds(view: Any) -> tuple[int, int]:
    if view.flags.c_contiguous:
        begin = view.__array_interface__["data"][0]
        return begin, begin + view.nbytes
    low, high = np.lib.array_utils.byte_bounds(view)
    return int(low), int(high)


def _share(a: Any, b: Any) -> bool:
    try:
        # Exact, for instance for the even and odd elements of one vector, but within bounds.
        shares: Any = np.shares_memory  # its stub knows two bounds only
        return bool(shares(a, b, max_work=10_000))
    except np.exceptions.TooHardError:
        return True
