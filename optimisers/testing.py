"""The laws that every rule keeps, for those who write their own."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .arrays.numbers import compute_dtype, describe, precision, standard_promotion
from .rules.fields import numbers_of, rebuild, template_of, with_fields
from .rules.pick import walked, with_children
from .rules.rule import Rule, Step, asks_of, scheduled, schedules_of, start

SHAPE = (3, 4)


def check_rule(rule: Rule, *, decays: bool = False, seed: int = 0) -> None:
    """Run a rule through the laws that the rest of the package relies on.

    Purity, determinism, shapes, dtypes (16-bit, 64-bit and complex ones too), the structure of the
    state, jit, zero gradients and derivatives at them, and, if the rule says that it is
    elementwise, whether it is, alone and among other parameters. The rule is not changed.

    Args:
        rule: the rule; of a class with conditions, check one for each way it can go. A schedule
            counts as the number that it begins with; further gradients are equal to the first.
        decays: whether a zero gradient is meant to move a parameter, as weight decay does.
        seed: for the random arrays.

    Returns:
        None: a rule that keeps the laws passes in silence.

    Raises:
        AssertionError: the rule breaks laws; the message says which, a sentence for each.

    Examples:
        >>> from optimisers.rules import Adam
        >>> check_rule(Adam(0.1))
    """
    broken = list(_is_rule(rule))
    if not broken:
        trial = _Trial(_begun(rule), decays, seed)
        laws = itertools.chain.from_iterable(_tried(law, trial) for law in LAWS)
        broken = list(_tried(_answer, trial)) or list(laws)
    if broken:
        name, count = type(rule).__name__, "a law" if len(broken) == 1 else f"{len(broken)} laws"
        raise AssertionError("\n- ".join([f"{name} breaks {count}:", *broken]))


@dataclass(frozen=True)
class _Trial:
    """A rule on trial, and the arrays it is tried with."""

    rule: Rule
    decays: bool
    seed: int

    def array(self, dtype: Any = np.float32, salt: int = 0, shape: tuple[int, ...] = SHAPE) -> Any:
        rng = np.random.default_rng((self.seed, salt))
        x = rng.normal(size=shape)
        if jnp.issubdtype(dtype, jnp.complexfloating):
            x = x + 1j * rng.normal(size=shape)
        return x.astype(dtype)

    def steps(self, x: Any, *grads: Any) -> tuple[Any, list[Step]]:
        """Return the state after some steps at x, and the steps."""
        state, steps = start(self.rule, x), []
        for g in grads:
            state, step = self.step(state, x, g)
            steps.append(step)
        return state, steps

    @property
    def higher(self) -> int:
        """How many gradients the rule needs beyond the first."""
        return max(asks_of(type(part)).least for part in walked(self.rule))

    def step(self, state: Any, x: Any, g: Any) -> tuple[Any, Step]:
        state, out = self.rule.apply(state, x, g, *[g] * self.higher)
        return state, out if isinstance(out, Step) else Step(out)


Law = Callable[[_Trial], Iterator[str]]


def _tried(law: Law, trial: _Trial) -> Iterator[str]:
    what = law.__name__.removeprefix("_").replace("_", " ")
    try:
        yield from law(trial)
    except Exception as error:  # noqa: BLE001 - the rule on trial may raise whatever it likes
        text = str(error).strip().partition("\n")[0]
        yield f"{what}: raised {type(error).__name__}: {text}"


def _is_rule(rule: Any) -> Iterator[str]:
    cls = type(rule)
    if not isinstance(rule, Rule):
        yield f"expected an instance of optimisers.Rule, got {rule!r}"
    elif "__dataclass_fields__" not in cls.__dict__ or not cls.__dataclass_params__.frozen:
        yield "the class is not a frozen dataclass; decorate it with @dataclass(frozen=True)"


def _begun(rule: Any) -> Any:
    """Return a rule with the numbers that its schedules begin with."""
    begun = scheduled(rule, 0, np.float32)
    numbers = {name: float(getattr(begun, name)) for name in schedules_of(rule)}
    return with_children(with_fields(rule, numbers), _begun)


def _answer(trial: _Trial) -> Iterator[str]:
    x = trial.array()
    answer: Any = trial.rule.apply(start(trial.rule, x), x, x, *[x] * trial.higher)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        got = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else describe(answer)
        yield f"answer: apply returned {got}, expected a pair, (next state, step)"


def _purity(trial: _Trial) -> Iterator[str]:
    x, g = trial.array(), trial.array(salt=1)
    numbers = copy.deepcopy(vars(trial.rule))
    state, _ = trial.steps(x, g)
    before = copy.deepcopy(jax.tree.map(np.asarray, state)), str(jax.tree.structure(state))
    first, step = trial.step(state, x, g)
    if str(jax.tree.structure(state)) != before[1] or not _equal(state, before[0]):
        yield "purity: apply changed the state that it was given; return a new one"
    if vars(trial.rule) != numbers:
        yield "purity: init or apply changed the rule; what changes between steps is state"
    again, other = trial.step(state, x, g)
    if not _equal((first, step.dx), (again, other.dx)):
        yield "determinism: apply gave two answers to one question; keep no state outside the state"


def _shape_and_dtype(trial: _Trial) -> Iterator[str]:
    for name in ("float16", "bfloat16", "float32", "float64", "complex64"):
        dtype = jnp.dtype(name)
        if name == "complex64" and not trial.rule.takes_complex:
            continue
        x, wide = trial.array(dtype), compute_dtype(dtype)
        with precision(name == "float64"), standard_promotion(dtype):
            begin, state, step = jax.eval_shape(_first_step(trial), x, x)
            yield from _step_fits(step, name, wide)
            yield from _state_fits(begin, state, name)


def _first_step(trial: _Trial) -> Callable[[Any, Any], tuple[Any, Any, Step]]:
    def run(x: Any, g: Any) -> tuple[Any, Any, Step]:
        begin = start(trial.rule, x)
        return begin, *trial.step(begin, x, g)

    return run


def _step_fits(step: Step, name: str, wide: Any) -> Iterator[str]:
    if step.dx.shape != SHAPE:
        yield f"shape: the step for {name}{list(SHAPE)} is {describe(step.dx)}"
    elif step.dx.dtype != wide and step.value is None:
        yield f"dtype: the step for a {name} parameter is {describe(step.dx)}, expected {wide}"


def _state_fits(begin: Any, state: Any, name: str) -> Iterator[str]:
    old, new = str(jax.tree.structure(begin)), str(jax.tree.structure(state))
    if old != new:
        yield f"state: init returns {old}, apply {new}; jit and scan need one structure"
        return
    for a, b in zip(jax.tree.leaves(begin), jax.tree.leaves(state), strict=True):
        if a.shape != b.shape or (a.dtype != b.dtype and not a.weak_type):
            yield f"state: {describe(a)} of init becomes {describe(b)} for a {name} parameter"
        if jnp.issubdtype(b.dtype, jnp.inexact) and b.dtype.itemsize < 4:
            yield f"dtype: {describe(b)} in the state, in which small additions are lost"


def _jit(trial: _Trial) -> Iterator[str]:
    x, grads = trial.array(), [trial.array(salt=i) for i in (1, 2)]
    template, numbers = template_of(trial.rule), numbers_of(trial.rule)

    def run(numbers: Any, x: Any, grads: Any) -> Any:
        inside = dataclasses.replace(trial, rule=rebuild(template, numbers))
        state, steps = inside.steps(x, *grads)
        return state, [step.dx for step in steps]

    state, steps = trial.steps(x, *grads)
    compiled = jax.jit(run)([np.float32(number) for number in numbers], x, grads)
    if not _close(compiled, (state, [step.dx for step in steps])):
        yield "jit: compiled, the rule gives other numbers; write apply in jax.numpy, without if"


def _zero_gradient(trial: _Trial) -> Iterator[str]:
    for name in ("float16", "bfloat16", "float32", "float64"):
        x = trial.array(jnp.dtype(name))
        _, state, step = _first_step(trial)(x, np.zeros_like(x))
        moved = step.dx if step.value is None else x - np.asarray(step.value)
        if not _finite((state, moved)):
            yield f"zero gradient: at {name} the step or the state is not finite; guard divisions"
        elif np.any(np.asarray(moved)) and not trial.decays:
            yield (
                f"zero gradient: it moves a {name} parameter from a fresh state; "
                "if that is meant, call check_rule(rule, decays=True)"
            )


def _derivative(trial: _Trial) -> Iterator[str]:
    template = template_of(trial.rule)

    def moved(numbers: Any, x: Any, g: Any) -> Any:
        inside = dataclasses.replace(trial, rule=rebuild(template, numbers))
        _, steps = inside.steps(x, g, g)
        return sum(jnp.sum(step.dx) for step in steps)

    numbers = [jnp.float32(number) for number in numbers_of(trial.rule)]
    x = trial.array()
    if not _finite(jax.grad(moved, argnums=(0, 1, 2))(numbers, x, np.zeros_like(x))):
        yield "derivative: at a zero gradient it is not finite; guard roots, as sqrt(0) has none"


def _elementwise(trial: _Trial) -> Iterator[str]:
    if not trial.rule.elementwise:
        return
    x, grads = trial.array(), [trial.array(salt=i) for i in (1, 2)]
    whole, steps = trial.steps(x, *grads)
    order = np.random.default_rng(trial.seed).permutation(x.size)

    def mixed(a: Any) -> Any:
        return np.reshape(a, -1)[order] if np.shape(a) == SHAPE else a

    state, mixed_steps = trial.steps(mixed(x), *map(mixed, grads))
    expected = jax.tree.map(mixed, (whole, [step.dx for step in steps]))
    if not _close((state, [step.dx for step in mixed_steps]), expected):
        yield (
            "elementwise: flattened and in another order, the elements move otherwise; "
            "do not look at x.shape, or set elementwise = False"
        )


def _packed(trial: _Trial) -> Iterator[str]:
    from .api.setup import setup
    from .api.update import update

    # Less than a row of a pack, exactly one, and more; a rule that asks about the whole model
    # gets one parameter, as among others it may well move otherwise.
    shapes = {"a": SHAPE, "b": (16,), "c": (2, 3, 5)}
    if _asks_the_model(trial.rule):
        shapes = {"c": shapes["c"]}
    model, *grads = (
        {n: trial.array(salt=ord(n) + i, shape=shape) for n, shape in shapes.items()}
        for i in (0, 50, 90)
    )
    found, state = model, setup(trial.rule, model)
    for g in grads:
        state, found = update(state, found, g, *[g] * trial.higher)
    for n, x in model.items():
        if not _close(found[n], _alone(trial, x, [g[n] for g in grads])):
            yield (
                f"packed: beside others, {describe(x)} moves otherwise than alone; "
                "if an element matters to others, set elementwise = False or use across"
            )


def _alone(trial: _Trial, x: Any, grads: list[Any]) -> Any:
    state = start(trial.rule, x)
    for g in grads:
        state, step = trial.step(state, x, g)
        new = x - step.dx if step.value is None else step.value
        x = jnp.where(step.run, new, x)
    return x


def _asks_the_model(rule: Rule) -> bool:
    from .state.spec import discovered

    shape = None if rule.elementwise else SHAPE
    return any(ask.scope == "model" for ask in discovered(template_of(rule), "float32", shape)[0])


LAWS: list[Law] = [
    _purity, _shape_and_dtype, _jit, _zero_gradient, _derivative, _elementwise, _packed,
]  # fmt: skip


def _leaves(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def _equal(a: Any, b: Any) -> bool:
    pairs = zip(_leaves(a), _leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def _close(a: Any, b: Any) -> bool:
    # One unit in the last place can come from a fused multiply-add, more where terms cancel.
    pairs = list(zip(_leaves(a), _leaves(b), strict=True))
    return all(x.shape == y.shape and np.allclose(x, y, 1e-4, 1e-6) for x, y in pairs)


def _finite(tree: Any) -> bool:
    return all(bool(jnp.isfinite(leaf).all()) for leaf in _leaves(tree))


__all__ = ["check_rule"]
