"""A state as a flat mapping from path to arrays, numbers and strings, and back.

For a parameter at `enc/w`: `enc/w/param`, its dtype and shape; `enc/w/rule`, the rule without its
numbers; `enc/w/hyperparameters/eta` and so on, the numbers; `enc/w/steps`; `enc/w/frozen`;
`enc/w/state/0` and so on, the rule's state; `enc/w/tied`, all its places, if there are several.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ..arrays import adapter_of, describe
from ..arrays.ops import is_traced_type
from ..errors import OptimiserError, StateError
from ..rules.checks import checked_fields
from ..rules.fields import Fixed, Number, Scheduled, Template, columns, numbers_of, rebuild
from ..rules.pick import walked, with_whole_numbers
from ..tree.outline import Path
from ..tree.paths import text_of
from .layout import Param
from .relayout import Kept, carried_at
from .spec import struct_of
from .state import Box, State


class Problem(Exception):
    """What does not fit at one parameter."""


class Found(NamedTuple):
    """One parameter as a mapping holds it, checked."""

    kept: Kept
    frozen: bool


def entries(state: State) -> dict[str, Any]:
    """Return the mapping for a state, or for a part of it with paths from there.

    Raises:
        StateError: two parameters have one name, or arrays are traced.
    """
    found: dict[str, Any] = {}
    for i, places in places_of(state):
        texts = list(map(text_of, places))
        if f"{texts[0]}/rule" in found:
            raise StateError(
                f"cannot name the parameters of a state: two are written {texts[0]!r}; "
                'an int and a string of the same digits, 0 and "0", cannot both be keys'
            )
        found.update({f"{texts[0]}/{name}": value for name, value in _entry(state._box, i)})
        if len(texts) > 1:
            found[f"{texts[0]}/tied"] = json.dumps(texts)
    return found


def places_of(state: State) -> Iterator[tuple[int, list[Path]]]:
    """Yield the parameters in a state or a part of it, with their places from there."""
    at = state._at
    for i, param in enumerate(state._box.layout.params):
        places = [path[len(at) :] for path in param.paths if path[: len(at)] == at]
        if places:
            yield i, places


def _entry(box: Box, i: int) -> Iterator[tuple[str, Any]]:
    param, (u, k) = box.layout.params[i], box.layout.where(i)
    unit, arrays = box.layout.units[u], box.arrays[u]
    if any(map(is_traced_type, map(type, arrays))):
        raise StateError(f"the state of {param.codes[0]} is traced; call state_dict outside jit")
    yield "param", described(param)
    yield "rule", signature(unit.spec.template)
    yield "frozen", param.frozen
    yield "steps", box.count(i)
    numbers = numbers_of(box.rule(i))
    for name, value in zip(_hypers(unit.spec.template), numbers, strict=True):
        yield name, value
    names = _names(unit.spec.template, param.dtype, param.shape)
    leaves = jax.tree.leaves(carried_at(unit, arrays, k)[1])
    for name, leaf in zip(names, leaves, strict=True):
        yield name, np.array(leaf)


def described(param: Param) -> str:
    """Write what a parameter is: `float32[3, 4]`."""
    return f"{param.dtype}{list(param.shape)}"


@functools.lru_cache(maxsize=512)
def signature(template: Template) -> str:
    """Write a rule without its numbers: class, static fields, and which numbers are scheduled."""
    return f"{template.cls.__name__}({', '.join(_part(*part) for part in template.parts)})"


def _part(name: str, part: Any) -> str:
    if isinstance(part, Template):
        return f"{name}={signature(part)}"
    if isinstance(part, tuple):
        return f"{name}=({', '.join(map(signature, part))})"
    if isinstance(part, Scheduled):
        return f"{name}=schedule"
    if isinstance(part, Number):
        return name if part.length is None else f"{name}[{part.length}]"
    assert isinstance(part, Fixed)
    # A function prints its address, which is another one in every process.
    return f"{name}={getattr(part.value, '__qualname__', repr(part.value))}"


@functools.lru_cache(maxsize=512)
def _hypers(template: Template) -> list[str]:
    return ["hyperparameters/" + "/".join(map(str, place)) for place in columns(template)]


@functools.lru_cache(maxsize=512)
def _names(template: Template, dtype: str, shape: tuple[int, ...]) -> list[str]:
    """Return the names of the leaves of a rule's state."""
    struct = struct_of(template, dtype, shape)[1]
    pairs, _ = jax.tree_util.tree_flatten_with_path(struct)
    return ["/".join(["state", *(text_of((_key(k),)) for k in path)]) for path, _ in pairs]


def _key(key: Any) -> Any:
    return next(getattr(key, a) for a in ("key", "idx", "name") if hasattr(key, a))


class Reader:
    """Takes the parameters of a state out of a mapping, and says all that does not fit."""

    def __init__(self, state: State, found: Mapping[str, Any]) -> None:
        self.box, self.found, self.problems = state._box, found, list[str]()
        self.asked: set[str] = set()
        self.read: set[str] = set()
        self.aliases: dict[str, str] = {}
        for key, value in found.items():
            prefix, _, last = key.rpartition("/")
            if last == "tied" and isinstance(value, str):
                self.aliases.update(dict.fromkeys(_texts(value), prefix))

    def parameter(self, i: int, places: list[Path]) -> Found | None:
        """Return what the mapping holds for a parameter; None, and a problem, if unfit."""
        try:
            return self._parameter(i, list(map(text_of, places)))
        except Problem as problem:
            self.problems.append(f"{self.box.layout.params[i].codes[0]}: {problem}")
            return None

    def strangers(self) -> None:
        """Note the parameters, and other entries, that the state does not have."""
        known = {key.removesuffix("/rule") for key in self.found if key.endswith("/rule")}
        left = {key: _owner(key, known) for key in set(self.found) - self.read}
        self.problems += [f"{name!r} is not in the state" for name in sorted(known - self.asked)]
        self.problems += [
            f"{key!r} is unknown" for key, owner in sorted(left.items()) if owner is None
        ]

    def _parameter(self, i: int, texts: list[str]) -> Found:
        param, (u, k) = self.box.layout.params[i], self.box.layout.where(i)
        unit = self.box.layout.units[u]
        prefix = next((t for t in texts if f"{t}/rule" in self.found), None)
        prefix = self.aliases.get(texts[0], texts[0]) if prefix is None else prefix
        self.asked.add(prefix)
        if f"{prefix}/rule" not in self.found:
            raise Problem("missing")
        template = unit.spec.template
        for name, wanted in (("param", described(param)), ("rule", signature(template))):
            if (got := self._get(prefix, name)) != wanted:
                raise Problem(f"got {got}, expected {wanted}")
        self._check_ties(prefix, texts)
        names = _names(template, param.dtype, param.shape)
        old = jax.tree.leaves(carried_at(unit, self.box.arrays[u], k)[1])
        leaves = [
            _array(self._get(prefix, name), name, np.shape(a), slot.dtype, a)
            for name, a, slot in zip(names, old, unit.spec.form.slots[1:], strict=True)
        ]
        structure = jax.tree.structure(struct_of(template, param.dtype, param.shape)[1])
        steps, frozen = self._flags(prefix)
        state = jax.tree.unflatten(structure, leaves)
        return Found(Kept(self._rule(template, prefix), steps, state), frozen)

    def _check_ties(self, prefix: str, texts: list[str]) -> None:
        tied = _texts(self.found.get(f"{prefix}/tied", json.dumps([prefix])))
        self.read.add(f"{prefix}/tied")
        if set(tied) != set(texts):
            raise Problem(f"got one parameter at {_listed(tied)}, expected at {_listed(texts)}")

    def _flags(self, prefix: str) -> tuple[int, bool]:
        frozen, steps = self._get(prefix, "frozen"), self._get(prefix, "steps")
        if not isinstance(frozen, bool | np.bool_):
            raise Problem(f"got frozen = {frozen!r}, expected True or False")
        whole = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
        if not whole or not 0 <= steps < 2**31:
            raise Problem(f"got steps = {steps!r}, expected a count")
        return int(steps), bool(frozen)

    def _get(self, prefix: str, name: str) -> Any:
        self.read.add(f"{prefix}/{name}")
        if f"{prefix}/{name}" not in self.found:
            raise Problem(f"{name} is missing")
        return self.found[f"{prefix}/{name}"]

    def _rule(self, template: Template, prefix: str) -> Any:
        numbers = [self._get(prefix, name) for name in _hypers(template)]
        for name, value in zip(_hypers(template), numbers, strict=True):
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise Problem(f"got {name} = {value!r}, expected a number")
        rule = with_whole_numbers(rebuild(template, list(map(float, numbers))))
        try:
            for part in walked(rule):
                checked_fields(part)
        except OptimiserError as error:
            raise Problem(str(error)) from None
        return rule


def _owner(key: str, known: set[str]) -> str | None:
    """Return the parameter that a key belongs to: no path of one begins with that of another."""
    parts = key.split("/")
    heads = ("/".join(parts[:n]) for n in range(len(parts)))
    return next((head for head in heads if head in known), None)


def _texts(value: Any) -> list[str]:
    try:
        texts = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return []
    return list(map(str, texts)) if isinstance(texts, list) else []


def _listed(texts: list[str]) -> str:
    return " and ".join(map(repr, sorted(texts))) or "nothing"


def _array(value: Any, name: str, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    """Return an array of a state, where the one that it replaces was; memory of its own."""
    adapter = adapter_of(type(value))
    view = np.asarray(value) if adapter is None else np.asarray(adapter.view(value))
    wanted = f"{dtype}{list(shape)}"
    if f"{view.dtype}{list(view.shape)}" != wanted:
        raise Problem(f"got {name} {describe(view)}, expected {wanted}")
    own = np.array(view)
    # Only what is where JAX would not put it by itself: another device, or several of them.
    placed = isinstance(like, jax.Array) and like.committed
    return jax.device_put(own, like.sharding) if placed else own
