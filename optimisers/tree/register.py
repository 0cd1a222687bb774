"""Users' own classes as containers: `register` and `trainable`."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

from ..errors import ArgumentError
from .nodes import Kind, Level, NameTuple, add_kind, attributes

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
    if not isinstance(cls, type):
        raise ArgumentError(f"cannot register {cls!r}: it is not a class")
    names = None if children is None else _names(children, "children")
    trained = None if trainable is None else _names(trainable, "trainable")
    if names is not None and trained is not None and (strange := set(trained) - set(names)):
        raise ArgumentError(
            f"cannot register {cls.__name__}: {sorted(strange)} are trainable but not children"
        )
    add_kind(cls, Kind(functools.partial(_open, names), attributes, _build, _write))
    if trained is not None:
        globals()["trainable"].register(cls, lambda x: trained)
    return cls


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
    return (slots,) if isinstance(slots, str) else tuple(s for s in slots if s != "__weakref__")


def _open(names: tuple[str, ...] | None, x: Any) -> Level:
    children = _attributes(x) if names is None else names
    trained = trainable(x)
    # Only what is trained is touched: another attribute may raise, or not exist.
    chosen = tuple(children) if trained is None else tuple(n for n in children if n in trained)
    rest = tuple(name for name in children if name not in chosen)
    return Level([getattr(x, name) for name in chosen], chosen, dotted=True, untrained=rest)


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
