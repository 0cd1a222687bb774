"""Dicts in dicts, as most models are: read and written by loops that C runs.

JAX and optree take about half a microsecond for each dict; this takes a tenth of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import getitem, itemgetter, setitem
from typing import Any

Getter = Callable[[Any], tuple[Any, ...]]


def getter(indices: Sequence[int]) -> Getter:
    """Return a function that fetches items as a tuple, also where there is one or none."""
    if len(indices) > 1:
        return itemgetter(*indices)
    if indices:
        (i,) = indices
        return lambda leaves: (leaves[i],)
    return lambda leaves: ()


@dataclass(frozen=True)
class Nest:
    """Where everything is in nested dicts.

    levels: for each level how to fetch the parents of its dicts from those above, and their names.
    sizes: how many items each dict has. owners, names: where each leaf is.
    fetch: how to fetch those leaves from all leaves of a tree; None if there are no others.
    readable: whether there is nothing else in the tree, and so much that this way pays.
    """

    levels: tuple[tuple[Getter, tuple[Any, ...]], ...]
    sizes: tuple[int, ...]
    owners: Getter
    names: tuple[Any, ...]
    fetch: Getter | None
    readable: bool

    def read(self, tree: Any) -> list[Any] | None:
        """Return all leaves, if these are the same nested dicts again."""
        if type(tree) is not dict:
            return None
        dicts: list[Any] = [tree]
        try:
            for parents, names in self.levels:
                dicts += map(getitem, parents(dicts), names)
                if set(map(type, dicts)) != ONLY_DICTS:
                    return None
            leaves = list(map(getitem, self.owners(dicts), self.names))
        except KeyError:
            return None
        return leaves if tuple(map(len, dicts)) == self.sizes else None

    def write(self, tree: Any, leaves: Sequence[Any]) -> None:
        """Put leaves where they belong."""
        dicts: list[Any] = [tree]
        for parents, names in self.levels:
            dicts += map(getitem, parents(dicts), names)
        new = leaves if self.fetch is None else self.fetch(leaves)
        deque(map(setitem, self.owners(dicts), self.names, new), maxlen=0)  # only to run it


ONLY_DICTS = {dict}
FEW = 16  # dicts that JAX reads as fast


def nest(nodes: Sequence[Any], held: Sequence[bool], size: int) -> Nest:
    """Return where everything is in those nodes that are held, all of them dicts.

    nodes: in preorder, with the first of them held. size: how many leaves the tree has in all.
    """
    order, levels, begin = [0], [], 0
    while begin < len(order):
        above, begin = range(begin, len(order)), len(order)
        below = [
            (at, nodes[order[at]].names[k], child)
            for at in above
            for k in nodes[order[at]].inner
            if held[child := ~nodes[order[at]].slots[k]]
        ]
        if below:
            levels.append((getter([at for at, _, _ in below]), tuple(name for _, name, _ in below)))
            order += [child for _, _, child in below]
    leaves = sorted(
        (slot, at, name)
        for at, i in enumerate(order)
        for name, slot in zip(nodes[i].names, nodes[i].slots, strict=True)
        if slot >= 0
    )
    return Nest(
        tuple(levels),
        tuple(len(nodes[i].names) for i in order),
        getter([at for _, at, _ in leaves]),
        tuple(name for _, _, name in leaves),
        None if len(leaves) == size else getter([slot for slot, _, _ in leaves]),
        all(held) and len(order) > FEW,
    )
