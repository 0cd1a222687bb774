"""A rule taken apart: its numbers on one side, everything else, hashable, on the other.

Kernels are compiled for the second half, a `Template`; the numbers are data, so that a new learning
rate never compiles anything. `numbers_of(rule)` and `rebuild(template, numbers)` are inverse.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from ..errors import RuleTypeError


class Fields:
    """A dataclass that this module can take apart and put together: the base of `Rule`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


def static_field(default: Any = dataclasses.MISSING) -> Any:
    """Declare a field of a rule that is not data: a kernel is compiled for each value of it."""
    return dataclasses.field(default=default, metadata={"dynamic": False})


def dynamic_field(default: Any = dataclasses.MISSING) -> Any:
    """Declare a field of a rule that is data, also where its annotation does not say `float`."""
    return dataclasses.field(default=default, metadata={"dynamic": True})


@dataclass(frozen=True)
class Number:
    """The place of one number, or of a tuple of `length` numbers, in a template."""

    length: int | None = None


@dataclass(frozen=True)
class Scheduled:
    """The place of a number that a function of the count of applied steps gives."""

    function: Any


@dataclass(frozen=True)
class Fixed:
    """A field that is part of the template as it is."""

    value: Any

    def __eq__(self, other: object) -> bool:
        # 1 == True == 1.0 in Python; a kernel compiled for one must not be used for another.
        return (
            isinstance(other, Fixed)
            and type(self.value) is type(other.value)
            and bool(self.value == other.value)
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True)
class Template:
    """A rule without its numbers: the class, and for each field what stands in its place."""

    cls: type[Fields]
    parts: tuple[tuple[str, Any], ...]

    def __hash__(self) -> int:
        return _template_hash(self)

    def __reduce__(self) -> Any:
        return Template, (self.cls, self.parts)  # without the cached hash, which is this process's

    @functools.cached_property
    def width(self) -> int:
        """How many numbers the rule holds, nested rules included."""
        return sum(1 for _ in columns(self))


def _template_hash(template: Template) -> int:
    cached = template.__dict__.get("_hash")
    if cached is None:
        cached = hash((template.cls, template.parts))
        object.__setattr__(template, "_hash", cached)
    return int(cached)


@functools.lru_cache(maxsize=512)
def _annotations(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except Exception:  # noqa: BLE001 - whatever evaluating the annotation raises
        # An annotation that only a type checker can resolve: the field is judged by its value.
        return {}


def is_dynamic(cls: type, field: dataclasses.Field[Any], value: Any) -> bool:
    """Tell whether a field is data: marked so, annotated `float`, or holding floats."""
    if "dynamic" in field.metadata:
        return bool(field.metadata["dynamic"])
    hint = annotation(cls, field.name)
    if hint in (bool, int, str):
        return False
    if hint is not None and _mentions_float(hint):
        return True
    values = value if isinstance(value, tuple) and value else (value,)
    return all(isinstance(v, float | np.floating | jax.Array) for v in values)


def annotation(cls: type, name: str) -> Any:
    """Return the type that a field of a rule is annotated with, None if it cannot be told."""
    return _annotations(cls).get(name)


def _mentions_float(hint: Any) -> bool:
    return hint is float or any(_mentions_float(part) for part in typing.get_args(hint))


def fields_of(rule: Fields) -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and kind ("number", "rule", "rules", "static") of each field of a rule."""
    for field in dataclasses.fields(rule):
        value = getattr(rule, field.name)
        if isinstance(value, Fields):
            yield field.name, value, "rule"
        elif isinstance(value, tuple) and value and all(isinstance(v, Fields) for v in value):
            yield field.name, value, "rules"
        elif is_dynamic(type(rule), field, value):
            yield field.name, value, "number"
        else:
            yield field.name, value, "static"


def template_of(rule: Fields) -> Template:
    """Return the rule without its numbers."""
    parts = tuple((name, _part(rule, name, value, kind)) for name, value, kind in fields_of(rule))
    template = Template(type(rule), parts)
    try:
        hash(template)
    except TypeError as error:
        raise RuleTypeError(
            f"cannot compile {rule!r}: a static field is not hashable ({error}); "
            "use tuples, strings and numbers, or mark arrays with dynamic_field()"
        ) from None
    return template


def same_kind(a: Any, b: Any) -> bool:
    """Tell whether two templates are one but for which numbers follow schedules, and which ones."""
    if isinstance(a, Template) and isinstance(b, Template):
        pairs = zip(a.parts, b.parts, strict=True)
        return a.cls is b.cls and all(m == n and same_kind(x, y) for (m, x), (n, y) in pairs)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_kind, a, b))
    if isinstance(a, Scheduled) or isinstance(b, Scheduled):
        return all(isinstance(x, Scheduled) or x == Number() for x in (a, b))
    if isinstance(a, Fixed) and isinstance(b, Fixed) and type(a.value) is type(b.value):
        # What a static value does may differ; it can say what the state looks like under it.
        return bool(getattr(a.value, "state_kind", a) == getattr(b.value, "state_kind", b))
    return bool(a == b)


def _part(rule: Fields, name: str, value: Any, kind: str) -> Any:
    if kind == "rule":
        return template_of(value)
    if kind == "rules":
        return tuple(template_of(child) for child in value)
    if kind == "static":
        return Fixed(value)
    if isinstance(value, tuple):
        return Number(len(value))
    return Scheduled(value) if callable(value) else Number()


def numbers_of(rule: Fields) -> list[Any]:
    """Return the numbers of a rule, in the order of its fields, nested rules in their places."""
    found: list[Any] = []
    for _, value, kind in fields_of(rule):
        if kind == "rule":
            found += numbers_of(value)
        elif kind == "rules":
            for child in value:
                found += numbers_of(child)
        elif kind == "number" and not callable(value):
            found += value if isinstance(value, tuple) else (value,)
    return found


def columns(template: Template, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each number stands, as `(field, ...)`; the order is that of `numbers_of`."""
    for name, part in template.parts:
        here = (*at, name)
        if isinstance(part, Template):
            yield from columns(part, here)
        elif isinstance(part, tuple):
            for i, child in enumerate(part):
                yield from columns(child, (*here, i))
        elif isinstance(part, Number):
            yield from [here] if part.length is None else ((*here, i) for i in range(part.length))


def rebuild(template: Template, numbers: Sequence[Any]) -> Any:
    """Put numbers (or tracers) into a template, without running the class's own checks."""
    rest = iter(numbers)
    rule = _fill(template, rest)
    if next(rest, None) is not None:
        raise ValueError(f"{template.cls.__name__} takes {template.width} numbers")
    return rule


def _fill(template: Template, rest: Iterator[Any]) -> Any:
    rule = object.__new__(template.cls)
    for name, part in template.parts:
        object.__setattr__(rule, name, _filled(part, rest))
    return rule


def _filled(part: Any, rest: Iterator[Any]) -> Any:
    if isinstance(part, Template):
        return _fill(part, rest)
    if isinstance(part, tuple):
        return tuple(_fill(child, rest) for child in part)
    if isinstance(part, Number):
        if part.length is None:
            return next(rest)
        return tuple(next(rest) for _ in range(part.length))
    return part.function if isinstance(part, Scheduled) else part.value


def with_fields(rule: Fields, fields: Mapping[str, Any]) -> Any:
    """Return a copy of a rule with some fields replaced, unchecked (they may be tracers)."""
    copy = object.__new__(type(rule))
    for field in dataclasses.fields(rule):
        object.__setattr__(copy, field.name, fields.get(field.name, getattr(rule, field.name)))
    return copy
