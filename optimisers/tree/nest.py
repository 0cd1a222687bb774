"""Nests of dicts, lists and tuples, as most models are: read and written by loops that C runs.

JAX and optree take about half a microsecond for each container; this takes a tenth of that.
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
    """Where everything is in some trees whose containers have items.

    levels: for each level how to fetch the parents of its containers from the trees and the levels
    above, the names there, and the types of all above. types, sizes: of all containers.
    owners, names: where each leaf is. slots: which leaves of the first tree they are, where they
    are not all.

    Before an item is asked for, it must be clear that a plain dict, list or tuple answers: others
    may add one (a defaultdict), or raise as they like.
    """

    levels: tuple[tuple[Getter, tuple[Any, ...], tuple[type, ...]], ...]
    types: tuple[type, ...]
    sizes: tuple[int, ...]
    owners: Getter
    names: tuple[Any, ...]
    slots: Getter | None

    def holders(self, trees: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return for each leaf the container that holds it, if these are the same nests again."""
        found = list(trees)
        try:
            for parents, names, above in self.levels:
                if tuple(map(type, found)) != above:
                    return None
                found += map(getitem, parents(found), names)
            if tuple(map(type, found)) != self.types or tuple(map(len, found)) != self.sizes:
                return None
        except LookupError:
            return None
        return self.owners(found)

    def read(self, trees: Sequence[Any]) -> list[Any] | None:
        """Return all leaves, if these are the same nests again."""
        holders = self.holders(trees)
        try:
            return None if holders is None else list(map(getitem, holders, self.names))
        except LookupError:
            return None

    def write(self, tree: Any, leaves: Sequence[Any]) -> None:
        """Put leaves where they belong; the tree is one of these. leaves: all of it."""
        found = [tree]
        for parents, names, _ in self.levels:
            found += map(getitem, parents(found), names)
        owners = self.owners(found)
        new = leaves if self.slots is None else self.slots(leaves)
        deque(map(setitem, owners, self.names, new), maxlen=0)  # only to run it


def nest(forest: Sequence[Sequence[Any]], kinds: Any, held: Sequence[bool] | None = None) -> Nest:
    """Return where everything is in trees with these nodes, each in preorder.

    kinds: the types of kinds of containers. held: which nodes of the only tree are of interest; of
    leaves, those that can be written.
    """
    order, levels, begin = [(t, 0) for t in range(len(forest))], [], 0
    while begin < len(order):
        above, begin = range(begin, len(order)), len(order)
        below = [
            (at, node.names[k], (t, ~node.slots[k]))
            for at in above
            for t, i in order[at : at + 1]
            for node in [forest[t][i]]
            for k in node.inner
            if held is None or held[~node.slots[k]]
        ]
        if below:
            types = tuple(kinds[forest[t][i].kind] for t, i in order)
            parents = getter([at for at, _, _ in below])
            levels.append((parents, tuple(name for _, name, _ in below), types))
            order += [child for _, _, child in below]
    nodes = [forest[t][i] for t, i in order]
    total = sum(slot >= 0 for tree in forest for node in tree for slot in node.slots)
    leaves = sorted(
        (order[at][0], slot, at, name)
        for at, node in enumerate(nodes)
        if held is None or kinds[node.kind] is not tuple
        for name, slot in zip(node.names, node.slots, strict=True)
        if slot >= 0
    )
    return Nest(
        tuple(levels),
        tuple(kinds[node.kind] for node in nodes),
        tuple(len(node.names) for node in nodes),
        getter([at for _, _, at, _ in leaves]),
        tuple(name for _, _, _, name in leaves),
        None if len(leaves) == total else getter([slot for _, slot, _, _ in leaves]),
    )
