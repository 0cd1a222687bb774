"""What one compiled program is for: a rule without numbers, some shapes, and how they are stored.

A `Spec` is static, hashable and small; two units with equal specs share their programs.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.numbers import compute_dtype, is_wide, precision, scalar_dtype, standard_promotion
from ..errors import RuleTypeError
from ..rules.across import Ask, Question, Replay, answer_like
from ..rules.fields import Template, rebuild
from ..rules.rule import Flow, Rule, Wrapper, asks_of, start

WIDTH = 16  # elements in a row of a pack: few enough to pad little, enough for vector instructions
NEARS = (8, 4, 2, 1)  # how many parameters of a pack are found from where the first of them begins
PROBE = (3, 5)  # an odd shape, so that arrays like x and scalars can be told apart


@dataclass(frozen=True)
class Slot:
    """Where one leaf of a rule's state is stored: as an array, or in a column of a scalar table."""

    dtype: str
    table: int | None = None
    column: int = 0


@dataclass(frozen=True)
class Form:
    """What is carried for a parameter: its tree, where each leaf is stored, the tables' dtypes.

    The tree is a pair: the count of steps applied to the parameter, and the rule's state.
    """

    treedef: Any
    slots: tuple[Slot, ...]
    tables: tuple[str, ...]

    @functools.cached_property
    def moments(self) -> int:
        """How many leaves are stored as arrays of their own."""
        return sum(slot.table is None for slot in self.slots)

    def widths(self) -> tuple[int, ...]:
        """How many columns each scalar table has."""
        return tuple(sum(s.table == t for s in self.slots) for t in range(len(self.tables)))

    def join(self, scalars: Any, moments: Any) -> Any:
        """Return count and state from a parameter's row of each scalar table and its arrays."""
        rest = iter(moments)
        leaves = [next(rest) if s.table is None else scalars[s.table][s.column] for s in self.slots]
        return jax.tree.unflatten(self.treedef, leaves)

    def split(self, state: Any, rule: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the rows of the scalar tables and the arrays of a pair; keep the dtypes."""
        leaves, treedef = jax.tree.flatten(state)
        if treedef != self.treedef:
            got, wanted = (tree.children()[1] for tree in (treedef, self.treedef))
            raise RuleTypeError(
                f"{rule}.apply returned a state {got}, but its init returned {wanted}"
            )
        tables: list[list[Any]] = [[] for _ in self.tables]
        moments: list[Any] = []
        for leaf, slot in zip(leaves, self.slots, strict=True):
            value = jnp.asarray(leaf).astype(slot.dtype)
            if slot.table is not None and value.shape:
                raise RuleTypeError(
                    f"{rule}.apply returned a state that turns shape [] into {list(value.shape)}"
                )
            (moments if slot.table is None else tables[slot.table]).append(value)
        return tuple(map(jnp.stack, tables)), tuple(moments)


@dataclass(frozen=True)
class Spec:
    """The static half of a unit: a pack (rows of one width) or a bundle (arrays as they are)."""

    template: Template
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    weak: tuple[bool, ...]
    packed: bool

    def __hash__(self) -> int:
        cached = self.__dict__.get("_hash")
        if cached is None:
            cached = hash((self.template, self.shapes, self.dtype, self.weak, self.packed))
            object.__setattr__(self, "_hash", cached)
        return int(cached)

    def __reduce__(self) -> Any:
        # What is cached in the instance, hashes of strings above all, is true in this process only.
        return spec_of, (self.template, self.shapes, self.dtype, self.weak, self.packed)

    @property
    def rule_name(self) -> str:
        """The name of the rule's class."""
        return self.template.cls.__name__

    @functools.cached_property
    def wide(self) -> bool:
        """Whether the unit is computed in 64 bits."""
        return is_wide(self.dtype)

    @functools.cached_property
    def form(self) -> Form:
        """The stored form of the rule's state for these parameters."""
        return form_of(self.template, self.dtype, self._probe)

    @property
    def _probe(self) -> tuple[int, ...] | None:
        return None if self.packed else self.shapes[0]

    @functools.cached_property
    def asks(self) -> tuple[Ask, ...]:
        """The reductions that must be answered from outside one run of the rule, in order."""
        return discovered(self.template, self.dtype, self._probe)[0]

    @functools.cached_property
    def requires(self) -> tuple[str, ...]:
        """The messages of the errors that need a value."""
        return discovered(self.template, self.dtype, self._probe)[1]

    @functools.cached_property
    def every_call(self) -> bool:
        """Whether the rule also runs where there is no gradient."""
        return runs_without_gradient(self.template)

    @functools.cached_property
    def higher(self) -> float:
        """How many higher gradients the rule takes at most."""
        return higher_of(self.template)

    @functools.cached_property
    def rows(self) -> tuple[int, ...]:
        """How many rows of a pack each parameter takes; an empty one takes one, for its scalars."""
        return tuple(max(1, -(-math.prod(shape) // WIDTH)) for shape in self.shapes)

    @functools.cached_property
    def owner(self) -> Any:
        """For each row of a pack, the parameter that it belongs to."""
        return np.repeat(np.arange(len(self.shapes), dtype=np.int32), self.rows)

    @functools.cached_property
    def first(self) -> Any:
        """The first row of each parameter of a pack."""
        return np.cumsum((0, *self.rows[:-1]), dtype=np.int32)

    @functools.cached_property
    def near(self) -> int:
        """How many parameters of a pack are found from where the first of them begins.

        Each distance of a shape from there is a kernel to compile, and each such place an argument
        in every step: the fewest of both, where a kernel counts as much as three arguments.
        """

        def cost(near: int) -> int:
            pairs = enumerate(zip(self.first, self.shapes, strict=True))
            cuts = {(int(row - self.first[i - i % near]), shape) for i, (row, shape) in pairs}
            return 3 * len(cuts) + len(self.first[::near])

        # Where there are few, each argument is a part of a step that is felt.
        return NEARS[0] if len(self.shapes) <= NEARS[0] else min(NEARS, key=cost)

    @functools.cached_property
    def begins(self) -> tuple[int, ...]:
        """The first element of each parameter of a pack, counted over all rows."""
        return tuple(int(row) * WIDTH for row in self.first)

    def places(self, row: int | None = None) -> Any:
        """Where a unit's parameters are, as far as programs are told: rows of a pack or of tables.

        A bundle of one has one row, the first. row: that of a bundle's parameter stepped alone.
        """
        if row is not None:
            return (np.uint32(row),)
        if self.packed:
            return self.first[:: self.near]
        return np.arange(len(self.shapes) if len(self.shapes) > 1 else 0, dtype=np.uint32)

    def alone(self, i: int) -> Spec:
        """Return the spec of a bundle of one: parameter `i` of this bundle."""
        shapes, weak = self.shapes[i : i + 1], self.weak[i : i + 1]
        return spec_of(self.template, shapes, self.dtype, weak, False)


@functools.lru_cache(maxsize=4096)
def spec_of(
    template: Template, shapes: tuple[tuple[int, ...], ...], dtype: str, weak: tuple[bool, ...],
    packed: bool,
) -> Spec:  # fmt: skip
    """Return the one `Spec` with this content, by whose identity programs are found."""
    return Spec(template, shapes, dtype, weak, packed)


def numbers_struct(template: Template, dtype: str) -> list[jax.ShapeDtypeStruct]:
    """Return abstract numbers for a template beside parameters of `dtype`."""
    return [jax.ShapeDtypeStruct((), scalar_dtype(dtype))] * template.width


@functools.lru_cache(maxsize=1024)
def struct_of(template: Template, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return count and first state of a rule, abstract, for a parameter of this dtype and shape."""

    def init(numbers: Any, x: Any) -> Any:
        state = jax.tree.map(jnp.asarray, start(rebuild(template, numbers), x))
        return jnp.zeros((), jnp.int32), state

    x = jax.ShapeDtypeStruct(shape, compute_dtype(dtype))
    with precision(is_wide(dtype)), standard_promotion(dtype):
        return jax.eval_shape(init, numbers_struct(template, dtype), x)


@functools.lru_cache(maxsize=1024)
def form_of(template: Template, dtype: str, shape: tuple[int, ...] | None) -> Form:
    """Find the stored form of a rule's state by tracing `init`; shape None means elementwise."""
    struct = struct_of(template, dtype, PROBE if shape is None else shape)
    leaves, treedef = jax.tree.flatten(struct)
    tables: dict[str, int] = {}
    slots: list[Slot] = []
    for leaf in leaves:
        if shape is None and leaf.shape not in ((), PROBE):
            raise RuleTypeError(
                f"{template.cls.__name__}.init returned {leaf.dtype}{list(leaf.shape)} for a "
                f"parameter of shape {list(PROBE)}; the state of an elementwise rule is shaped "
                "like the parameter or scalar (or set elementwise = False)"
            )
        slots.append(_slot(leaf, dtype, tables, slots))
    return Form(treedef, tuple(slots), tuple(tables))


def _slot(leaf: Any, dtype: str, tables: dict[str, int], before: list[Slot]) -> Slot:
    if leaf.shape != () or jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        return Slot(str(leaf.dtype))
    # A Python float in a state is weakly typed; as a stored scalar it is as wide as the numbers.
    floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    name = str(scalar_dtype(dtype) if floating else leaf.dtype)
    table = tables.setdefault(name, len(tables))
    return Slot(name, table, sum(slot.table == table for slot in before))


@functools.lru_cache(maxsize=1024)
def discovered(
    template: Template, dtype: str, shape: tuple[int, ...] | None
) -> tuple[tuple[Ask, ...], tuple[str, ...]]:
    """Trace a rule with ever more answers to learn what it asks, and which errors it may raise."""
    cls: Any = template.cls
    if cls.advance is Rule.advance and not asks_of(cls).across:
        return (), ()
    asks: list[Ask] = []
    messages: list[str] = []
    real = scalar_dtype(dtype)
    probe = jax.ShapeDtypeStruct(PROBE if shape is None else shape, compute_dtype(dtype))

    def trial(numbers: Any, x: Any, answers: Any) -> Any:
        across = Replay(answers, whole=shape is not None)
        rule = rebuild(template, numbers)
        try:
            flow = Flow(x, (x,) * 8, across=across, dtype=np.dtype(dtype), count=0)
            rule.advance(start(rule, x), x, flow)
        except Question as question:
            asks.append(question.ask)
        messages[:] = [message for _, message in across.required]
        return ()

    with precision(is_wide(dtype)), standard_promotion(dtype):
        while True:
            known = len(asks)
            answers = [answer_like(ask, jax.ShapeDtypeStruct((), real)) for ask in asks]
            jax.eval_shape(trial, numbers_struct(template, dtype), probe, answers)
            if len(asks) == known:
                return tuple(asks), tuple(messages)


def _inner(template: Template) -> list[Template]:
    parts = [part for _, part in template.parts]
    inner = [t for p in parts for t in (p if isinstance(p, tuple) else (p,))]
    return [t for t in inner if isinstance(t, Template)]


@functools.lru_cache(maxsize=1024)
def runs_without_gradient(template: Template) -> bool:
    """Tell whether a rule, or a rule inside it, asks whether there is a gradient."""
    cls: Any = template.cls
    return asks_of(cls).present or any(map(runs_without_gradient, _inner(template)))


@functools.lru_cache(maxsize=1024)
def higher_of(template: Template) -> float:
    """Return how many higher gradients a rule takes at most, or a rule inside it."""
    cls: Any = template.cls
    own = 0 if issubclass(cls, Wrapper) else asks_of(cls).most  # a wrapper passes on what there is
    return max([own, *map(higher_of, _inner(template))])
