"""Containers, one level at a time: what they hold, under which names, and how to make another one.

optree flattens whole trees in C++, in a namespace of our own. Classes that only JAX's registry
knows (Equinox modules, Flax structs, registered dataclasses) are bridged into it when first seen.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import optree

from ..arrays import is_array_type
from ..arrays.containers import Kind, Level, NameTuple, as_sequence, container_of, keyed
from ..errors import StructureError

NAMESPACE = "optimisers"
_lock = threading.RLock()


class Names:
    """What optree keeps of a node of ours: the names alone, since nothing static is compared."""

    __slots__ = ("names",)

    def __init__(self, names: tuple[Hashable, ...]) -> None:
        self.names = names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)


_kinds: dict[type, Kind] = {}
_closed: weakref.WeakSet[type] = weakref.WeakSet()  # classes whose objects cannot be written


def add_kind(cls: type, kind: Kind) -> None:
    """Make `cls` a container; a class that is one already gets the new kind."""
    with _lock:
        new = cls not in _kinds
        _kinds[cls] = kind  # first: another thread may flatten as soon as optree knows the class
        if new:
            _introduce(cls)


def _introduce(cls: type) -> None:
    def flatten_one(x: Any) -> tuple[Any, Names, tuple[Hashable, ...]]:
        level = _kinds[cls].open(x)
        return level.children, Names(level.names), level.names

    optree.register_pytree_node(cls, flatten_one, _cannot_unflatten, namespace=NAMESPACE)


def _cannot_unflatten(names: Any, children: Any) -> Any:
    raise TypeError("containers of optimisers are rebuilt from the original, not from a treedef")


def flatten(tree: Any, what: str = "model") -> tuple[list[Any], Any]:
    """Return the leaves of a tree (None counts as one) and its structure, hashable, names only."""
    while True:
        try:
            leaves, treedef = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
        except RecursionError:
            raise StructureError(
                f"cannot walk {what}: it is nested deeper than {optree.MAX_RECURSION_DEPTH} "
                "levels, or contains itself"
            ) from None
        if not _bridge_new_types(leaves):
            return leaves, treedef


def _bridge_new_types(leaves: Sequence[Any]) -> bool:
    types = set(map(type, leaves))
    if all(map(is_plain_type, types)):
        return False
    found = False
    for x in leaves:
        cls = type(x)
        if cls in types and not is_plain_type(cls):
            types.discard(cls)
            found = _bridged(x) or found
    return found


def _bridged(x: Any) -> bool:
    """Tell whether a leaf is a container after all, by now: its library's, or JAX's registry's."""
    cls = type(x)
    with _lock:  # so that a class which another thread is adding is added when we look again
        if cls not in _kinds:
            kind = container_of(cls)
            if kind is None and jax.tree_util.all_leaves([x]):
                return False
            add_kind(cls, kind or BRIDGED)
        return True


PLAIN = (type(None), bool, int, float, complex, str, bytes, type, type(len), type(lambda: 0))


def is_plain_type(cls: type) -> bool:
    """Tell whether objects of a class are leaves, whatever JAX's registry says."""
    return cls in PLAIN or is_array_type(cls)


def kind_of(x: Any) -> Kind | None:
    """Return how `x` is taken apart, or None for a leaf; `flatten` has seen its tree before."""
    cls = type(x)
    kind = _kinds.get(cls) or BUILT_IN.get(cls)
    if kind is not None:
        return kind
    if is_plain_type(cls):
        return None
    if optree.is_namedtuple(x):
        return NAMED_TUPLE
    if optree.is_structseq(x):
        return TUPLE
    # Registered with optree itself, for every namespace.
    return None if optree.tree_is_leaf(x, none_is_leaf=True, namespace=NAMESPACE) else OPTREE


def _open_optree(x: Any) -> Level:
    children, _, names, _ = optree.tree_flatten_one_level(x, none_is_leaf=True, namespace=NAMESPACE)
    return Level(children, tuple(names))


def _build_optree(x: Any, names: NameTuple, children: list[Any]) -> Any:
    parts = optree.tree_flatten_one_level(x, none_is_leaf=True, namespace=NAMESPACE)
    return parts.unflatten_func(parts.metadata, children)


def open_items(x: Any) -> Level:
    """Take apart a mapping by its keys."""
    return Level(list(x.values()), tuple(x))


def _open_named_tuple(x: Any) -> Level:
    return Level(x, type(x)._fields, dotted=True, ordered=True)


def _build_dict(x: Any, names: NameTuple, children: list[Any]) -> Any:
    new = x.copy()  # keeps the class, the order and a default factory
    new.update(zip(names, children, strict=True))
    return new


def _write_dict(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    x.update(zip(names, children))  # noqa: B905 - once a step and container; lengths are the plan's
    return x


def _write_sequence(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    for i, child in enumerate(children):
        x[i] = child
    return x


def _build_deque(x: Any, names: NameTuple, children: list[Any]) -> Any:
    return collections.deque(children, maxlen=x.maxlen)


def open_jax(x: Any) -> Level:
    """Take apart, by one level, a node that JAX's registry knows."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda y: y is not x)
    keys = [path[0] for path, _ in pairs]
    dotted = any(isinstance(key, jax.tree_util.GetAttrKey) for key in keys)
    ordered = any(isinstance(key, jax.tree_util.SequenceKey) for key in keys)
    return Level([child for _, child in pairs], tuple(map(_name, keys)), dotted, ordered)


def _name(key: Any) -> Hashable:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            name: Hashable = getattr(key, attribute)
            return name
    return str(key)


def _build_jax(x: Any, names: NameTuple, children: list[Any]) -> Any:
    treedef = jax.tree_util.tree_structure(x, is_leaf=lambda y: y is not x)
    return jax.tree_util.tree_unflatten(treedef, children)


def _write_jax(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    """Write into a dataclass whose children are fields that can be set; rebuild others."""
    if type(x) in _closed or not _has_fields(x, names):
        return _build_jax(x, names, list(children))
    try:
        for name, child in zip(names, children, strict=True):
            setattr(x, str(name), child)
    except AttributeError:  # frozen, by the decorator or, as in Equinox, by a __setattr__
        _closed.add(type(x))
        return _build_jax(x, names, list(children))
    return x


def _has_fields(x: Any, names: NameTuple) -> bool:
    # Whoever registers a class with JAX names its children as they like; only the objects tell.
    if not dataclasses.is_dataclass(x):
        return False
    held: dict[Any, Any] = dict(vars(x)) if hasattr(x, "__dict__") else {}
    return all(held.get(n) is c for n, c in zip(names, open_jax(x).children, strict=True))


def _itself(x: Any, names: NameTuple) -> Sequence[Any]:
    children: Sequence[Any] = x
    return children


def _one_level(x: Any, names: NameTuple) -> Sequence[Any]:
    return _open_optree(x).children


DICT = Kind(_open_optree, keyed, _build_dict, _write_dict)
SEQUENCE = Kind(as_sequence, _itself, lambda x, names, children: children, _write_sequence)
TUPLE = Kind(as_sequence, _itself, lambda x, names, children: type(x)(children))
NAMED_TUPLE = Kind(_open_named_tuple, _itself, lambda x, names, children: type(x)._make(children))
DEQUE = Kind(as_sequence, _itself, _build_deque, _write_sequence)
OPTREE = Kind(_open_optree, _one_level, _build_optree)
BRIDGED = Kind(open_jax, lambda x, names: open_jax(x).children, _build_jax, _write_jax)
BUILT_IN: dict[type, Kind] = {
    dict: DICT,
    collections.OrderedDict: DICT,
    collections.defaultdict: DICT,
    list: SEQUENCE,
    tuple: TUPLE,
    collections.deque: DEQUE,
}
