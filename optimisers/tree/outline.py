"""A tree walked by name, once: where its leaves are, and the program that rebuilds it.

Everything here is static (names and kinds, no arrays), so that it can be kept as long as a tree of
the same structure comes back. All walks are loops: a model may be 900 levels deep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from ..arrays.containers import Kind
from .nest import Nest, nest
from .nodes import DEQUE, DICT, SEQUENCE, TUPLE, kind_of
from .register import trainable

Path = tuple[Hashable, ...]


# Written by assigning items: what was there before is the same object afterwards.
IN_PLACE = (DICT, SEQUENCE, DEQUE)
ITEMS: dict[Kind, type] = {DICT: dict, SEQUENCE: list, TUPLE: tuple}


class Node(NamedTuple):
    """A container in an outline: its path, names, and what stands at each name.

    slots: for each child the index of a leaf, or `~index` of a node.
    inner: the places of those children that are nodes.
    """

    kind: Kind
    path: Path
    code: str
    cls: str
    names: tuple[Hashable, ...]
    slots: tuple[int, ...]
    inner: tuple[int, ...]
    ordered: bool
    untrained: tuple[str, ...]
    optional: bool


@dataclass
class Outline:
    """The names of a tree: nodes in preorder, and the path and code of each leaf.

    left: the leaves below children that `trainable`, or their library, leaves out.
    """

    nodes: list[Node] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    left: set[int] = field(default_factory=set)

    def preorder(self) -> Iterator[tuple[Path, str | int]]:
        """Yield every place from the top, a container with its class, a leaf with its index."""
        todo = [~0 if self.nodes else 0]
        while todo:
            slot = todo.pop()
            if slot >= 0:
                yield self.paths[slot], slot
                continue
            node = self.nodes[~slot]
            yield node.path, node.cls
            todo += reversed(node.slots)


def outline(tree: Any, root: str = "model") -> Outline:
    """Walk a tree, leaves in the order of `flatten`, and write down every name."""
    found = Outline()
    todo: list[tuple[Any, Path, str, int, int, bool]] = [(tree, (), root, -1, 0, True)]
    slots: list[list[int]] = []
    while todo:
        x, path, code, parent, place, on = todo.pop()
        kind = kind_of(x)
        if parent >= 0:
            slots[parent][place] = len(found.paths) if kind is None else ~len(found.nodes)
        if kind is None:
            if not on:
                found.left.add(len(found.paths))
            found.paths.append(path)
            found.codes.append(code)
            continue
        level, me = kind.open(x), len(found.nodes)
        slots.append([0] * len(level.names))
        found.nodes.append(
            Node(kind, path, code, type(x).__name__, level.names, (), (), level.ordered,
                 level.untrained, level.optional)
        )  # fmt: skip
        children, chosen = list(level.children), trainable(x)
        for i in reversed(range(len(children))):
            name = level.names[i]
            below = on and (chosen is None or name in chosen) and name not in level.left
            todo.append((children[i], (*path, name), code + step(name, level.dotted), me, i, below))
    for me, places in enumerate(slots):
        inner = tuple(i for i, s in enumerate(places) if s < 0)
        found.nodes[me] = found.nodes[me]._replace(slots=tuple(places), inner=inner)
    return found


def step(name: Hashable, dotted: bool) -> str:
    """Write one step of a path as code: `.weight`, `["weight"]` or `[0]`."""
    if dotted and isinstance(name, str) and name.isidentifier():
        return f".{name}"
    if isinstance(name, str) and '"' not in name and repr(name) == f"'{name}'":
        return f'["{name}"]'  # nothing in it needs escaping: as it is mostly written
    return f"[{name!r}]"


class Refit(NamedTuple):
    """How one container gets its new children: which leaves, and which containers made before."""

    node: int
    kind: Kind
    names: tuple[Hashable, ...]
    leaves: Callable[[Any], tuple[Any, ...]] | None
    slots: tuple[int, ...]


class Program(NamedTuple):
    """How a tree gets new leaves: containers fetched from the top, refitted from the bottom.

    fetch: for each container that holds a parameter, those of its children that are containers.
    refits: the containers that hold a parameter; the others are passed on as they are.
    writes: those of them that must be written where writing is possible: what was written in place
    needs not be put into its container again.
    nest: how to write quickly, where all these have items, and what holds a parameter is no tuple.
    """

    size: int
    fetch: tuple[tuple[int, Kind, tuple[Hashable, ...], tuple[tuple[int, int], ...]], ...]
    refits: tuple[Refit, ...]
    writes: tuple[Refit, ...]
    nest: Nest | None


def program(nodes: Sequence[Node], trained: Collection[int]) -> Program:
    """Write down how a tree with these nodes gets new leaves at `trained`."""
    held = [False] * len(nodes)
    for i in reversed(range(len(nodes))):
        held[i] = any(s in trained if s >= 0 else held[~s] for s in nodes[i].slots)
    fetch = []
    for i, node in enumerate(nodes):
        inner = tuple((k, ~node.slots[k]) for k in node.inner)
        if inner and held[i]:
            fetch.append((i, node.kind, node.names, inner))
    refits = [
        Refit(i, nodes[i].kind, nodes[i].names, _picker(nodes[i].slots), nodes[i].slots)
        for i in reversed(range(len(nodes)))
        if held[i]
    ]
    same = [not h or node.kind in IN_PLACE for h, node in zip(held, nodes, strict=True)]
    writes = [
        r
        for r in refits
        if not same[r.node] or any(s in trained if s >= 0 else not same[~s] for s in r.slots)
    ]
    owners = [r.kind for r in refits if any(s in trained for s in r.slots)]
    plain = bool(refits) and TUPLE not in owners and all(r.kind in ITEMS for r in refits)
    fast = nest([nodes], ITEMS, held) if plain else None
    return Program(len(nodes), tuple(fetch), tuple(refits), tuple(writes), fast)


def readable(outlines: Sequence[Outline]) -> Nest | None:
    """Return how to read trees quickly, where all their containers have items."""
    forest = [found.nodes for found in outlines]
    plain = all(nodes and all(node.kind in ITEMS for node in nodes) for nodes in forest)
    return nest(forest, ITEMS) if plain else None


def _picker(slots: tuple[int, ...]) -> Callable[[Any], tuple[Any, ...]] | None:
    if len(slots) < 2 or min(slots) < 0:
        return None
    return itemgetter(*slots)


def rebuild(tree: Any, steps: Program, leaves: Sequence[Any], write: bool) -> Any:
    """Return a tree like `tree` with other leaves.

    With `write`, containers that can be written are, and keep their identity; without, those that
    hold a parameter are made anew and `tree` is left alone. A mutable container at two places
    comes back as one object.
    """
    if not steps.size:
        return leaves[0]
    if write and steps.nest is not None:
        steps.nest.write(tree, leaves)
        return tree
    objects: list[Any] = [None] * steps.size
    objects[0] = tree
    for i, kind, names, inner in steps.fetch:
        children = kind.get(objects[i], names)
        for place, child in inner:
            objects[child] = children[place]
    seen: dict[int, Any] = {}
    for i, kind, names, pick, slots in steps.writes if write else steps.refits:
        x = objects[i]
        if pick is not None:
            children = pick(leaves)
        else:
            children = [leaves[s] if s >= 0 else objects[~s] for s in slots]
        if write and kind is DICT:  # the most frequent; written twice, it holds the same
            x.update(zip(names, children))  # noqa: B905 - lengths are the plan's
            continue
        if id(x) in seen:
            objects[i] = seen[id(x)]
            continue
        if write and kind.write is not None:
            objects[i] = kind.write(x, names, children)
        else:
            objects[i] = kind.build(x, names, list(children))
        if kind.write is not None:
            seen[id(x)] = objects[i]
    return objects[0]
