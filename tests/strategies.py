"""Random models: every kind of container, shared arrays, gaps, and gradients that fit them.

A tree is drawn as a plan (`Nest`, `Leaf`, `Thing`), so that one plan gives a model, its gradients
in other containers, and the same model with its keys in another order. Numbers are multiples of 1/8
and hyper-parameters 1/2, so that every result is exact and can be compared with `==`.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import optimisers as opt

SHAPES = [(2, 3), (), (20,), (0,), (2,)]  # few, so that programs are found again
KINDS_OF_ARRAYS = [("numpy", "float32"), ("numpy", "float64"), ("jax", "float32")]


class Pair(NamedTuple):
    a: Any
    b: Any


@opt.register
class Plain:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    TRAINED: ClassVar = ("a", "b")


@opt.register(children=("a", "b"), trainable=("a",))
class Half:
    """Only `a` is trained, and whatever else is asked for raises."""

    TRAINED: ClassVar = ("a",)

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self._b = a, b

    @property
    def b(self) -> Any:
        raise RuntimeError("an attribute that is not trained was looked at")


@opt.register
@dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any


@opt.register
@dataclass
class Mutable:
    a: Any
    b: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JaxFrozen:
    a: Any
    b: Any


@jax.tree_util.register_dataclass
@dataclass
class JaxMutable:
    a: Any
    b: Any


class Module(eqx.Module):
    a: Any
    b: Any


@flax.struct.dataclass
class Struct:
    a: Any
    b: Any


OBJECTS = [Plain, Half, Frozen, Mutable, JaxFrozen, JaxMutable, Module, Struct]
WRITABLE = (dict, list, collections.deque, Plain, Half, Mutable, JaxMutable)


@dataclass(frozen=True)
class Leaf:
    """The place of an array of the pool."""

    index: int


@dataclass(frozen=True)
class Thing:
    """Something that is not trained."""

    value: Any


@dataclass(frozen=True)
class Nest:
    """A container of some kind; keys matter for mappings only."""

    kind: Any
    keys: tuple[Any, ...]
    inside: tuple[Any, ...]

    def made(self, kids: Sequence[Any], keys: Sequence[Any] | None = None) -> Any:
        """Return the container with these children."""
        kind = self.kind
        if kind is collections.defaultdict:
            return collections.defaultdict(int, zip(keys or self.keys, kids, strict=True))
        if issubclass(kind, dict):
            return kind(zip(keys or self.keys, kids, strict=True))
        if kind is Pair or kind in OBJECTS:
            return kind(*kids)
        return kind(kids)


THINGS = [None, 3, 2.5, "text", np.tanh, (), np.arange(3), jnp.arange(2), np.array([True])]
KEYS = st.one_of(st.sampled_from("abcxyz"), st.integers(-3, 3), st.tuples(st.integers(0, 2)))
MAPPINGS = [dict, collections.OrderedDict, collections.defaultdict]
SEQUENCES = [list, tuple, collections.deque]


@st.composite
def nests(draw: st.DrawFn, arrays: int, depth: int) -> Any:
    """Draw a container, or below the last level a leaf."""
    what = draw(st.integers(0, 9))
    if depth == 0 or what == 9:
        if draw(st.integers(0, 9)) > 6:
            return Thing(draw(st.sampled_from(THINGS)))
        return Leaf(draw(st.integers(0, arrays - 1)))
    kind = draw(st.sampled_from([*OBJECTS, Pair, *MAPPINGS, *SEQUENCES]))
    count = 2 if kind is Pair or kind in OBJECTS else draw(st.integers(0, 3))
    kids = tuple(draw(nests(arrays, depth - 1)) for _ in range(count))
    if kind in MAPPINGS:
        keys = draw(st.lists(KEYS, min_size=count, max_size=count, unique=True))
        return Nest(kind, tuple(keys), kids)
    if kind is Module and any(map(is_mixed, kids)):
        kind = Frozen  # Equinox flattens what it is given by JAX, which insists on sorting keys
    return Nest(kind, tuple(range(count)) if kind in SEQUENCES else ("a", "b"), kids)


def is_mixed(plan: Any) -> bool:
    """Tell whether some mapping in a plan has keys that cannot be sorted."""
    if not isinstance(plan, Nest):
        return False
    return len(set(map(type, plan.keys))) > 1 or any(map(is_mixed, plan.inside))


@st.composite
def plans(draw: st.DrawFn, arrays: int = len(SHAPES)) -> Nest:
    """Draw the plan of a model in which at least one place is trained."""
    trees = [draw(nests(arrays, depth)) for depth in (1, 2, 3)]
    return Nest(list, (0, 1, 2, 3), (Leaf(0), *trees))


@st.composite
def numbers(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> Any:
    """Draw a NumPy array of small multiples of 1/8."""
    size = math.prod(shape)
    eighths = draw(st.lists(st.integers(-64, 64), min_size=size, max_size=size))
    return (np.array(eighths, dtype=dtype) / 8).astype(dtype).reshape(shape)


@st.composite
def pools(draw: st.DrawFn, kinds: Sequence[tuple[str, str]] = KINDS_OF_ARRAYS) -> list[Any]:
    """Draw the arrays of a model, of several libraries, none of which is another one."""
    found = []
    for shape in SHAPES:
        library, dtype = draw(st.sampled_from(kinds))
        x = draw(numbers(shape, dtype))
        found.append(jnp.asarray(x) if library == "jax" else x)
    return found


def built(plan: Any, pool: Sequence[Any], order: Callable[[list[Any]], list[Any]] = list) -> Any:
    """Return the model of a plan; `order` may rearrange the items of mappings."""
    if isinstance(plan, Leaf):
        return pool[plan.index]
    if isinstance(plan, Thing):
        return plan.value
    kids = [built(child, pool, order) for child in plan.inside]
    if plan.kind in MAPPINGS:
        pairs = order(list(zip(plan.keys, kids, strict=True)))
        return plan.made([kid for _, kid in pairs], [key for key, _ in pairs])
    return plan.made(kids)


@st.composite
def gradients(draw: st.DrawFn, plan: Any, pool: Sequence[Any], gaps: bool = True) -> Any:
    """Draw a gradient for a plan: gaps, other containers with the same names, other libraries."""
    if gaps and draw(st.integers(0, 5)) == 5:
        return None
    if isinstance(plan, Thing):
        ignored = draw(st.sampled_from([None, "ignored", 0.0, np.ones(2, np.float32)]))
        return None if isinstance(plan.value, tuple) else ignored
    if isinstance(plan, Leaf):
        x = pool[plan.index]
        g = draw(numbers(tuple(x.shape), draw(st.sampled_from(["float32", "float64"]))))
        if g.shape == () and draw(st.booleans()):
            return float(g)
        return draw(st.sampled_from([g, jnp.asarray(g.astype(np.float32))]))
    kids = [draw(gradients(child, pool, gaps)) for child in plan.inside]
    return dataclasses.replace(plan, kind=draw(st.sampled_from(alike(plan.kind)))).made(kids)


def alike(kind: Any) -> list[Any]:
    """Return the kinds of containers that fit one kind by name or by position."""
    if kind in MAPPINGS:
        return MAPPINGS
    if kind in SEQUENCES:
        return SEQUENCES
    return [kind, dict, Pair, list] if kind is Pair else [kind, dict, Pair]


@st.composite
def worlds(draw: st.DrawFn, gaps: bool = True, steps: int = 2, **options: Any) -> Any:
    """Draw `(plan, pool, [gradients, ...])`."""
    pool = draw(pools(**options))
    plan = draw(plans(len(pool)))
    return plan, pool, [draw(gradients(plan, pool, gaps)) for _ in range(steps)]
