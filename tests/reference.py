"""The walk again, slowly and obviously: plain recursion on real objects, a rule on one leaf.

It shares no code with the package but the rules themselves, and knows containers only by what
Python says of them: mappings have keys, sequences have positions, objects have fields.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Path = tuple[Hashable, ...]


def children(x: Any) -> list[tuple[Hashable, Any]] | None:
    """Return the children of a container with their names, or None for a leaf.

    Classes of our tests say in TRAINED which of their fields are trained, if not all are.
    """
    if isinstance(x, dict):
        return list(x.items())
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return list(zip(x._fields, x, strict=True))
    if isinstance(x, list | tuple | collections.deque):
        return list(enumerate(x))
    if hasattr(type(x), "TRAINED"):
        return [(name, getattr(x, name)) for name in type(x).TRAINED]
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return [(field.name, getattr(x, field.name)) for field in dataclasses.fields(x)]
    return None


def places(x: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf with its path."""
    inside = children(x)
    if inside is None:
        yield path, x
        return
    for name, child in inside:
        yield from places(child, (*path, name))


def item(x: Any, path: Path) -> Any:
    """Return what stands at a path; names of objects and keys of mappings count alike."""
    for name in path:
        inside = children(x)
        assert inside is not None
        x = dict(inside)[name]
    return x


def replaced(x: Any, new: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """Return a copy of a tree with `new(path, leaf)` in the place of each leaf."""
    inside = children(x)
    if inside is None:
        return new(path, x)
    kids = {name: replaced(child, new, (*path, name)) for name, child in inside}
    if isinstance(x, dict):
        made = copy.copy(x)
        made.update(kids)
        return made
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*kids.values())
    if isinstance(x, collections.deque):
        return collections.deque(kids.values(), x.maxlen)
    if isinstance(x, list | tuple):
        return type(x)(kids.values())
    made = copy.copy(x)
    for name, child in kids.items():
        object.__setattr__(made, str(name), child)
    return made


def is_parameter(x: Any) -> bool:
    """Tell whether a leaf is an array of floating or complex numbers."""
    if not (isinstance(x, np.ndarray | jax.Array) or type(x).__module__.startswith("torch")):
        return False
    return str(x.dtype).removeprefix("torch.").startswith(("float", "bfloat", "complex"))


def parameters(model: Any) -> list[tuple[Any, list[Path]]]:
    """Return each parameter once, with all places where it stands."""
    found: dict[int, tuple[Any, list[Path]]] = {}
    for path, x in places(model):
        if is_parameter(x):
            found.setdefault(id(x), (x, []))[1].append(path)
    return list(found.values())


def gradient_at(model: Any, grads: Any, path: Path) -> Any:
    """Return the gradient at a path of the model, None where there is none on the way there."""
    for name in path:
        if grads is None:
            return None
        mine, given = children(model), children(grads)
        assert mine is not None
        assert given is not None
        names = [n for n, _ in mine]
        by_name = dict(given)
        # Only where one side has positions and the other names do positions decide.
        grads = by_name[name] if name in by_name else given[names.index(name)][1]
        model = dict(mine)[name]
    return grads


def setup(rule: Any, model: Any) -> dict[Path, Any]:
    """Return the state of each parameter, by the first place where it stands."""
    return {paths[0]: rule.init(jnp.asarray(dense(x))) for x, paths in parameters(model)}


def update(rule: Any, state: dict[Path, Any], model: Any, grads: Any) -> tuple[Any, Any]:
    """Take one step at every parameter that has a gradient at one of its places."""
    state, new = dict(state), {}
    for x, paths in parameters(model):
        parts = [gradient_at(model, grads, path) for path in paths]
        known = [dense(g) for g in parts if g is not None]
        if known:
            value, home = dense(x), paths[0]
            total = sum(known[1:], known[0])
            state[home], step = rule.apply(state[home], jnp.asarray(value), jnp.asarray(total))
            moved = np.asarray(value - np.asarray(step), dtype=value.dtype)
            new.update(dict.fromkeys(paths, moved))
    return state, replaced(model, lambda path, x: new.get(path, x))


def dense(x: Any) -> Any:
    """Return any array, or a number, as a NumPy array."""
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def assert_same(a: Any, b: Any, close: Callable[[Any, Any], bool] = np.array_equal) -> None:
    """Insist that two trees hold the same containers, the same objects, equal arrays."""
    ours, theirs = list(places(a)), list(places(b))
    assert [path for path, _ in ours] == [path for path, _ in theirs]
    for (path, x), (_, y) in zip(ours, theirs, strict=True):
        if is_parameter(y) or isinstance(y, np.ndarray | jax.Array):
            assert dense(x).shape == dense(y).shape, path
            assert close(dense(x), dense(y)), (path, x, y)
        else:
            assert x is y or x == y, path
    assert containers(a) == containers(b)


def containers(x: Any) -> Any:
    """Return the classes of all containers, nested as they are."""
    inside = children(x)
    return None if inside is None else (type(x), [(name, containers(c)) for name, c in inside])


__all__ = [
    "assert_same", "children", "containers", "dense", "gradient_at", "is_parameter", "item",
    "parameters", "places", "replaced", "setup", "update",
]  # fmt: skip
