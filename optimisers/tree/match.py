"""The parallel walk: which gradient belongs to which parameter, found by name.

The answer is a plan of indices, good for every pair of trees with the same two structures; where
the trees do not fit, the error names the place. Nothing here looks at an array.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ..errors import StructureError
from .outline import Node, Outline, Path


class Match(NamedTuple):
    """For each leaf of the model the index of its gradient, or -1 where there is none above it.

    prunes: leaves of the gradient that stand where the model has a container, with the code of the
    place: they must be None (or whatever else means no gradient).
    """

    gradient: tuple[int, ...]
    prunes: tuple[tuple[int, str], ...]


def match(model: Outline, grads: Outline, trained: Collection[int]) -> Match:
    """Find the gradient of each trained leaf of the model.

    Raises:
        StructureError: a missing item, an unknown key, or a container of another kind.
    """
    nodes = {node.path: node for node in model.nodes}
    leaves = {path: i for i, path in enumerate(model.paths)}
    aligned, given = _align(nodes, leaves, grads)
    index = [-1] * len(model.paths)
    pruned: dict[int, str] = {}
    for i in trained:
        path = model.paths[i]
        found = given.get(path)
        if found is not None:
            index[i] = found
            continue
        if path in aligned:
            raise StructureError(
                f"the gradient does not fit at {model.codes[i]}: got a {aligned[path].cls}, "
                "expected an array"
            )
        above = _above(path, given)
        if above is not None:
            pruned[given[above]] = nodes[above].code
        elif not _may_lack(path, aligned, nodes):
            _missing(model, grads, aligned, nodes, i)
    _extras(grads, nodes, leaves, given, pruned)
    return Match(tuple(index), tuple(pruned.items()))


def _align(
    nodes: dict[Path, Node], leaves: dict[Path, int], grads: Outline
) -> tuple[dict[Path, Node], dict[Path, int]]:
    """Write the gradient's containers and leaves under the model's names.

    Names differ only where one side is a plain sequence and the other a named tuple: by position.
    """
    aligned: dict[Path, Node] = {}
    given: dict[Path, int] = {}
    paths: list[Path] = [()] * len(grads.nodes)
    if not grads.nodes:
        return aligned, {(): 0}
    for i, node in enumerate(grads.nodes):
        path = paths[i]
        aligned[path] = node
        mine = nodes.get(path)
        if mine is not None and _is_plain(node) and not mine.ordered and mine.names:
            raise StructureError(
                f"the gradient does not fit at {mine.code}: got a {node.cls} of {len(node.names)}, "
                f"expected a container with the names {_listed(mine.names)}"
            )
        names = node.names
        if (
            mine is not None
            and mine.ordered
            and node.ordered
            and _is_plain(mine) != _is_plain(node)
        ):
            names = (*mine.names[: len(names)], *names[len(mine.names) :])
        for name, slot in zip(names, node.slots, strict=True):
            if slot < 0:
                paths[~slot] = (*path, name)
            else:
                given[(*path, name)] = slot
    return aligned, given


def _is_plain(node: Node) -> bool:
    """Tell whether a container has positions and no names."""
    return node.ordered and node.names == tuple(range(len(node.names)))


def _above(path: Path, given: dict[Path, int]) -> Path | None:
    return next((path[:n] for n in range(len(path)) if path[:n] in given), None)


def _may_lack(path: Path, aligned: dict[Path, Node], nodes: dict[Path, Node]) -> bool:
    """Tell whether the deepest container on the way down, on either side, lets names be missing."""
    deepest = next(path[:n] for n in reversed(range(len(path))) if path[:n] in aligned)
    return aligned[deepest].optional or nodes[deepest].optional


def _missing(
    model: Outline, grads: Outline, aligned: dict[Path, Node], nodes: dict[Path, Node], leaf: int
) -> None:
    path = model.paths[leaf]
    depth = next(n for n in reversed(range(len(path))) if path[:n] in aligned)
    got, place = aligned[path[:depth]], nodes[path[:depth]]
    code = nodes[path[: depth + 1]].code if path[: depth + 1] in nodes else model.codes[leaf]
    if got.ordered and place.ordered:
        seen = f"a {got.cls} of {len(got.names)} where the model has {len(place.names)}"
    else:
        seen = f"a {got.cls} with {_listed(got.names)}"
    raise StructureError(
        f"the gradient has nothing at {code}: got {seen} at {place.code}; "
        "put None where there is no gradient"
    )


def _extras(
    grads: Outline,
    nodes: dict[Path, Node],
    leaves: dict[Path, int],
    given: dict[Path, int],
    pruned: dict[int, str],
) -> None:
    """Go through the gradients that no parameter asked for; only some of them are harmless."""
    for path, i in given.items():
        if leaves.get(path) is not None or i in pruned:
            continue  # it has its parameter, or its parameter is not trained
        if path in nodes:
            pruned[i] = nodes[path].code  # above nothing that is trained: legal as None
            continue
        if any(path[:n] in leaves for n in range(len(path))):
            continue  # below something that is not trained
        depth = next(n for n in reversed(range(len(path))) if path[:n] in nodes)
        place = nodes[path[:depth]]
        if path[depth] in place.untrained:
            continue
        raise StructureError(
            f"the gradient has {grads.codes[i]}, but {place.code} has no such item; "
            f"it has {_listed(place.names)}"
        )


def _listed(names: tuple[object, ...], most: int = 8) -> str:
    shown = ", ".join(map(repr, names[:most])) or "nothing"
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
