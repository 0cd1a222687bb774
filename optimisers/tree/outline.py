"""A tree walked by name, once: where its leaves are, and the program that rebuilds it.

Everything here is static (names and kinds, no arrays), so that it can be kept as long as a tree of
the same structure comes back. All walks are loops: a model may be 900 levels deep.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .nodes import Kind, kind_of
from .register import trainable

Path = tuple[Hashable, ...]


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

    left: the leaves below children that `trainable` leaves out.
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
            below = on and (chosen is None or name in chosen)
            todo.append((children[i], (*path, name), code + step(name, level.dotted), me, i, below))
    for me, places in enumerate(slots):
        inner = tuple(i for i, s in enumerate(places) if s < 0)
        found.nodes[me] = found.nodes[me]._replace(slots=tuple(places), inner=inner)
    return found


def step(name: Hashable, dotted: bool) -> str:
    """Write one step of a path as code: `.weight`, `["weight"]` or `[0]`."""
    if dotted and isinstance(name, str) and name.isidentifier():
        return f".{name}"
    return f'["{name}"]' if isinstance(name, str) and '"' not in name else f"[{name!r}]"


def holding(nodes: Sequence[Node], leaves: Collection[int]) -> tuple[bool, ...]:
    """Tell for each node whether one of `leaves` is somewhere below it."""
    found = [False] * len(nodes)
    for i in reversed(range(len(nodes))):
        found[i] = any(s in leaves if s >= 0 else found[~s] for s in nodes[i].slots)
    return tuple(found)


def rebuild(
    tree: Any, nodes: Sequence[Node], held: Sequence[bool], leaves: Sequence[Any], write: bool
) -> Any:
    """Return a tree like `tree` with other leaves.

    With `write`, containers that can be written are, and keep their identity; without, the
    containers that hold a parameter (`held`) are made anew and `tree` is left alone. A mutable
    container at two places comes back as one object.
    """
    if not nodes:
        return leaves[0]
    objects = _containers(tree, nodes)
    made: list[Any] = list(objects)
    seen: dict[int, Any] = {}
    for i in reversed(range(len(nodes))):
        node, x = nodes[i], objects[i]
        if not held[i]:
            continue
        if id(x) in seen:
            made[i] = seen[id(x)]
            continue
        children = [leaves[s] if s >= 0 else made[~s] for s in node.slots]
        put = node.kind.write if write and node.kind.write is not None else node.kind.build
        made[i] = put(x, node.names, children)
        if node.kind.write is not None:
            seen[id(x)] = made[i]
    return made[0]


def _containers(tree: Any, nodes: Sequence[Node]) -> list[Any]:
    """Return the containers of a tree, in the order of its nodes."""
    objects: list[Any] = [tree] * len(nodes)
    for i, node in enumerate(nodes):
        if not node.inner:
            continue
        children = node.kind.get(objects[i], node.names)
        for place in node.inner:
            objects[~node.slots[place]] = children[place]
    return objects
