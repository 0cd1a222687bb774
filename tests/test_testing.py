"""check_rule lets good rules pass in silence, and says in words which law a bad one breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import ClipNorm, OptimiserChain, Rule, SkipNonFinite, Step
from optimisers.rules.across import ALONE, Across
from optimisers.testing import LAWS, check_rule


@dataclass(frozen=True)
class Plain(Rule):
    """A good rule, from which each bad one below differs in one thing."""

    eta: float = 0.1
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        return jnp.zeros_like(x), 1.0

    def apply(self, state: Any, x: Any, dx: Any) -> Any:
        v, t = state
        v = 0.5 * v + dx
        return (v, t * 0.5), self.eta * v


@dataclass(frozen=True)
class Signed(Rule):
    """Without a meaning for complex numbers, and saying so."""

    elementwise: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = False

    def apply(self, state: Any, x: Any, dx: Any) -> Any:
        return state, jnp.clip(dx, -1.0, 1.0)


@dataclass(frozen=True)
class Whole(Rule):
    """Not elementwise: its state is shaped otherwise."""

    def init(self, x: Any) -> Any:
        return jnp.zeros((2, 2), x.real.dtype)

    def apply(self, state: Any, x: Any, dx: Any) -> Any:
        return state + 1, dx - dx.mean()


@dataclass(frozen=True)
class Normed(Rule):
    """Elementwise but for a reduction."""

    elementwise: ClassVar[bool] = True

    def apply(self, state: Any, x: Any, dx: Any, *, across: Across = ALONE) -> Any:
        return state, dx / (1.0 + across.array(jnp.abs(dx), "max"))


@dataclass(frozen=True)
class Replacing(Rule):
    """Replaces the parameter instead of stepping."""

    elementwise: ClassVar[bool] = True

    def apply(self, state: Any, x: Any, dx: Any) -> Any:
        return state, Step(dx, value=x - 0.5 * dx)


@dataclass(frozen=True)
class Damped(Rule):
    """Takes a second gradient."""

    eta: float = 0.1
    elementwise: ClassVar[bool] = True

    def apply(self, state: Any, x: Any, dx: Any, dx2: Any) -> Any:
        return state, self.eta * dx / (1.0 + dx2 * dx2)


GOOD = [Plain(), Signed(), Whole(), Normed(), Replacing(), Damped(), OptimiserChain(Damped())]


@pytest.mark.parametrize("rule", GOOD, ids=repr)
def test_a_good_rule_passes_in_silence(rule: Rule) -> None:
    assert check_rule(rule) is None


def test_a_rule_that_follows_a_schedule_passes_too() -> None:
    slow: Any = lambda count: 0.1 / (1 + count)  # noqa: E731
    check_rule(SkipNonFinite(OptimiserChain(ClipNorm(), Plain(slow))))


def test_decay_passes_where_it_is_announced() -> None:
    decay = bad(lambda state, x, dx: (state, dx + 0.1 * x))
    check_rule(decay, decays=True)
    with pytest.raises(AssertionError, match="call check_rule\\(rule, decays=True\\)"):
        check_rule(decay)


CALLS: list[int] = []


def bad(apply: Callable[..., Any], init: Callable[..., Any] | None = None, **names: Any) -> Rule:
    """Return a rule that is like Plain but for its `apply` (without self), `init` and constants."""
    parts = {"apply": lambda self, state, x, dx: apply(state, x, dx), **names}
    if init is not None:
        parts["init"] = lambda self, x: init(x)
    return dataclass(frozen=True)(type("Bad", (Plain,), parts))()


def writes_into_its_state(state: Any, x: Any, dx: Any) -> Any:
    state["v"] = state["v"] + dx
    return state, state["v"]


def remembers_outside(state: Any, x: Any, dx: Any) -> Any:
    CALLS.append(1)
    return state, dx * len(CALLS)


def asks_a_value(state: Any, x: Any, dx: Any) -> Any:
    return state, dx if bool((dx >= 0).any()) else -dx


def looks_at_shape(state: Any, x: Any, dx: Any) -> Any:
    return state, dx / (x.shape[0] if x.ndim == 2 else 1)


def zero(x: Any) -> Any:
    return jnp.zeros_like(x)


@dataclass(frozen=True)
class Moody(Rule):
    """Changes itself."""

    eta: float = 0.1

    def apply(self, state: Any, x: Any, dx: Any) -> Any:
        object.__setattr__(self, "eta", 0.5 * self.eta)
        return state, 0.1 * dx


BROKEN = {
    "answer: apply returned float32[3, 4], expected a pair": bad(lambda state, x, dx: dx),
    "answer: apply returned a tuple of 3, expected a pair": bad(
        lambda state, x, dx: (state, dx, dx)
    ),
    "answer: raised TypeError": bad(lambda state: state),
    "purity: apply changed the state": bad(writes_into_its_state, lambda x: {"v": zero(x)}),
    "purity: init or apply changed the rule": Moody(),
    "determinism": bad(remembers_outside),
    "shape: the step for float16[3, 4] is float32[12]": bad(
        lambda state, x, dx: (state, jnp.ravel(dx))
    ),
    "dtype: the step for a float16 parameter is float16[3, 4]": bad(
        lambda state, x, dx: (state, dx.astype(jnp.float16))
    ),
    "dtype: float16[3, 4] in the state": bad(
        lambda state, x, dx: (state, dx), lambda x: x.real.astype(jnp.float16)
    ),
    "state: init returns": bad(lambda state, x, dx: ((state, dx), dx), zero),
    "state: float32[3, 4] of init becomes float32[]": bad(
        lambda state, x, dx: (jnp.sum(state), dx), zero
    ),
    "jit: raised TracerBoolConversionError": bad(asks_a_value),
    "jit: compiled, the rule gives other numbers": bad(
        lambda state, x, dx: (state, dx * (2 if "Tracer" in type(dx).__name__ else 1))
    ),
    "zero gradient: at float16 the step or the state is not finite": bad(
        lambda state, x, dx: (state, dx / jnp.abs(dx))
    ),
    "zero gradient: it moves a float16 parameter": bad(lambda state, x, dx: (state, dx + 1e-3)),
    "derivative: at a zero gradient it is not finite": bad(
        lambda state, x, dx: (state, jnp.sqrt(jnp.abs(dx)) * 0.1)
    ),
    "elementwise: flattened and in another order": bad(looks_at_shape),
    "packed: beside others, float32[3, 4] moves otherwise than alone": bad(
        lambda state, x, dx: (state, dx - jnp.mean(dx))
    ),
    "shape and dtype: raised": bad(lambda state, x, dx: (state, jnp.clip(dx, -1.0, 1.0))),
}


@pytest.mark.parametrize("words", BROKEN)
def test_each_broken_law_is_said_in_words(words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_rule(BROKEN[words])
    text = str(caught.value)
    assert words in text
    assert text.splitlines()[0].endswith((" breaks a law:", " laws:"))


def test_every_law_is_broken_by_some_rule() -> None:
    said = " ".join(BROKEN)
    for law in LAWS:
        name = law.__name__.strip("_").replace("_", " ")
        assert name.partition(" and ")[0] in said


def test_what_is_no_rule_is_said_at_once() -> None:
    class Undecorated(Plain):
        pass

    @dataclass
    class Thawed:
        eta: float = 0.1

    with pytest.raises(AssertionError, match=r"expected an instance of optimisers\.Rule, got 0\.1"):
        check_rule(0.1)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"expected an instance of optimisers\.Rule"):
        check_rule(Thawed())  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"decorate it with @dataclass\(frozen=True\)"):
        check_rule(Undecorated())


def test_a_rule_that_breaks_several_laws_is_told_all_of_them() -> None:
    rule = bad(lambda state, x, dx: (state, jnp.ravel(dx) + np.float32(1)))
    with pytest.raises(AssertionError, match=r"Bad breaks \d+ laws:(\n- .*)+"):
        check_rule(rule)
