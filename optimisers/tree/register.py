"""Users' own classes as containers: `register` and `trainable`."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

from optree import is_namedtuple_class

from ..arrays.containers import Kind, Level, NameTuple, as_sequence, attributes
from ..errors import ArgumentError, StructureError
from .nodes import (
    BUILT_IN,
    DICT,
    SEQUENCE,
    add_kind,
    is_plain_type,
    open_items,
)  # fmt: skip

T = TypeVar("T")


@functools.singledispatch
def trainable(x: Any) -> tuple[str, ...] | None:
    """Return the names of the children of `x` that are trained, or None for all of them.

    Overload it for a class of containers with `@optimisers.trainable.register(cls)`; the classes of
    `optimisers.register(cls, trainable=...)` are overloaded by that call.

    Args:
        x: an object of a registered class.

    Returns:
        A tuple of names; None where nothing was said, which means every child.

    Examples:
        >>> trainable({"w": 1.0}) is None
        True
    """
    return None


@overload
def register(cls: type[T], children: Iterable[str] | None = ..., trainable: Iterable[str] | None = ...) -> type[T]: ...  # fmt: skip  # noqa: E501
@overload
def register(cls: None = ..., children: Iterable[str] | None = ..., trainable: Iterable[str] | None = ...) -> Callable[[type[T]], type[T]]: ...  # fmt: skip  # noqa: E501
def register(
    cls: type[T] | None = None,
    children: Iterable[str] | None = None,
    trainable: Iterable[str] | None = None,
) -> Any:
    """Make a class a container, so that arrays in its attributes are found and trained.

    Attributes that are not children are never looked at. An object that can be written keeps its
    identity in `update_`; a frozen one, and any one in `update`, is copied without `__init__`.

    Args:
        cls: the class; left out in `@register` and `@register(children=...)`.
        children: names of the attributes that hold arrays or containers; all attributes if None.
        trainable: those of the children that are trained; all of them if None. Gradients at the
            others are ignored.

    Returns:
        The class, so that this works as a decorator.

    Raises:
        ArgumentError: `cls` is not a class, or a trainable name is not among the children.

    Examples:
        >>> @register(trainable=("w",))
        ... class Layer:
        ...     def __init__(self, w, scale):
        ...         self.w, self.scale = w, scale
    """
    if cls is None:
        return functools.partial(register, children=children, trainable=trainable)
    _check_class(cls)
    names = None if children is None else _names(children, "children")
    trained = None if trainable is None else _names(trainable, "trainable")
    if names is not None and trained is not None and (strange := set(trained) - set(names)):
        raise ArgumentError(
            f"cannot register {cls.__name__}: {sorted(strange)} are trainable but not children"
        )
    if not is_namedtuple_class(cls):  # one is a container already
        add_kind(cls, _kind(cls, names))
    if trained is not None:
        globals()["trainable"].register(cls, lambda x: trained)
    return cls


def _check_class(cls: Any) -> None:
    if not isinstance(cls, type):
        raise ArgumentError(f"cannot register {cls!r}: it is not a class")
    if cls in BUILT_IN:
        raise ArgumentError(f"cannot register {cls.__name__}: it is a container already")
    if is_plain_type(cls) or cls.__module__ == "builtins":
        raise ArgumentError(f"cannot register {cls.__name__}: it is a leaf, not a container")


def _kind(cls: type, names: tuple[str, ...] | None) -> Kind:
    """Return how objects of a class are taken apart: attributes, or items of a dict or list."""
    if names is None and issubclass(cls, dict):
        return Kind(open_items, DICT.get, _build_items, DICT.write)
    if names is None and issubclass(cls, list):
        return Kind(as_sequence, SEQUENCE.get, _build_list, SEQUENCE.write)
    return Kind(functools.partial(_open, names), attributes, _build, _write)


def _build_items(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    new = copy.copy(x)
    new.update(zip(names, children, strict=True))
    return new


def _build_list(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    new = copy.copy(x)
    new[:] = children
    return new


def _names(names: Iterable[str], what: str) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(name, str) for name in found):
        raise ArgumentError(f"{what} must be names of attributes, got {found!r}")
    return found


def _attributes(x: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(x):
        return tuple(field.name for field in dataclasses.fields(x))
    slots = [name for cls in type(x).__mro__ for name in _slots(cls) if hasattr(x, name)]
    return (*slots, *getattr(x, "__dict__", ()))


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(_mangled(cls, name) for name in names if name not in ("__weakref__", "__dict__"))


def _mangled(cls: type, name: str) -> str:
    """Return the name under which Python keeps a slot that is private to its class."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{cls.__name__.lstrip('_')}{name}" if private else name


def _open(names: tuple[str, ...] | None, x: Any) -> Level:
    children = _attributes(x) if names is None else names
    trained = trainable(x)
    # Only what is trained is touched: another attribute may raise, or not exist.
    chosen = tuple(children) if trained is None else tuple(n for n in children if n in trained)
    rest = tuple(name for name in children if name not in chosen)
    return Level([_child(x, name) for name in chosen], chosen, dotted=True, untrained=rest)


def _child(x: Any, name: str) -> Any:
    try:
        return getattr(x, name)
    except AttributeError as error:
        raise StructureError(
            f"cannot take apart a {type(x).__name__}: {error}; set it, if only to None, or name "
            "other attributes in register(cls, children=...)"
        ) from error


def _build(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    return _set(copy.copy(x), names, children)


def _write(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    parameters = getattr(type(x), "__dataclass_params__", None)
    frozen = parameters is not None and parameters.frozen
    return _build(x, names, children) if frozen else _set(x, names, children)


def _set(x: Any, names: NameTuple, children: Sequence[Any]) -> Any:
    for name, child in zip(names, children, strict=True):
        object.__setattr__(x, str(name), child)
    return x
