"""Reductions that a rule may ask for: over one parameter, or over all parameters under the rule.

A rule that looks at a norm writes its formula straight down, in `apply`:

    norm = jnp.sqrt(across.array(dx * dx, "sum"))       # of this parameter
    scale, root = across.model(dx, "norm")              # of all parameters under this rule

What is reduced are elementwise values, so that the same line works on an array and on a packed row
of many arrays. Where the sum is not known yet, the question itself is what the program returns:
`Question` leaves `apply`, the engine reduces, combines, and runs `apply` again with the answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from ..errors import NonFiniteError
from .squares import EXPONENTS, root_of, squares

How = Literal["sum", "max", "min", "norm"]
NEUTRAL: dict[str, float] = {"sum": 0.0, "norm": 0.0, "max": -jnp.inf, "min": jnp.inf}
REDUCE: dict[str, Any] = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min}
COMBINE: dict[str, Any] = {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}


class Ask(NamedTuple):
    """The static half of a question: over what, how, and who asks (for "model")."""

    scope: Literal["array", "model"]
    how: How
    key: str


def answer_like(ask: Ask, scalar: Any) -> Any:
    """Return an answer of which each number is `scalar`."""
    return (scalar,) * len(EXPONENTS) if ask.how == "norm" else scalar


class Question(Exception):
    """Leaves `apply` with elementwise values whose reduction is not known yet."""

    def __init__(self, ask: Ask, values: Any) -> None:
        super().__init__(ask)
        self.ask, self.values = ask, values


def reduce_whole(values: Any, how: str) -> Any:
    """Reduce all elements of one array; an empty one gives the neutral element."""
    return REDUCE[how](values, initial=NEUTRAL[how])


# Compiled, because called eagerly a condition would be compiled anew each time.
_squares_of_all = jax.jit(lambda values: squares(values, jnp.sum))


def reduced(values: Any, how: How, over: Callable[[Any, str], Any] | None = None) -> Any:
    """Return an answer, such as can be combined with others: of a norm the sums of squares.

    `over` reduces in another way than over everything.
    """
    if how != "norm":
        return (over or reduce_whole)(values, how)
    return squares(values, lambda v: over(v, "sum")) if over else _squares_of_all(values)


def combined(answers: Sequence[Any], how: How) -> Any:
    """Return the answer for all parameters from those for some of them."""
    combine = COMBINE["sum" if how == "norm" else how]
    return jax.tree.map(lambda *each: functools.reduce(combine, each), *answers)


def told(answer: Any, how: How) -> Any:
    """Return what a rule is told of an answer."""
    return root_of(answer) if how == "norm" else answer


class Across:
    """The reductions as a rule sees them when it runs alone on one array."""

    owner: str = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def array(self, values: Any, how: How = "sum") -> Any:
        """Reduce elementwise `values` over this parameter; returns a scalar.

        The 2-norm, "norm", is returned as (scale, root) and is `scale * root`: two numbers can say
        also what the sum of the squares would be too large or too small for.
        """
        return told(reduced(values, how), how)

    def model(self, values: Any, how: How = "sum") -> Any:
        """Reduce elementwise `values` over all parameters under this rule; returns as `array`.

        Rules of one class at different parameters of a state are answered together.
        """
        return told(reduced(values, how), how)

    def require(self, ok: Any, message: str) -> None:
        """Insist on `ok`; on concrete arrays `message` is raised before anything is written."""
        if not isinstance(ok, Tracer) and not bool(ok):
            raise NonFiniteError(message)

    def under(self, owner: str, running: Any) -> Across:
        """Return the reductions for a rule of class `owner`, in which only what runs counts."""
        self.owner = owner
        return self if running is True else Running(self, running)


class Running(Across):
    """Reductions that leave out parameters at which the rules do not run this time.

    Between two emissions of AccumGrad, and where a gradient is missing, a norm must not be
    disturbed by what stands still, and nothing is demanded of it.
    """

    def __init__(self, base: Across, running: Any) -> None:
        self.base, self.running = base, running

    def array(self, values: Any, how: How = "sum") -> Any:
        """Reduce over this parameter, if it runs."""
        return self.base.array(self._counted(values, how), how)

    def model(self, values: Any, how: How = "sum") -> Any:
        """Reduce over the parameters that run."""
        return self.base.model(self._counted(values, how), how)

    def require(self, ok: Any, message: str) -> None:
        """Insist on `ok` where the parameter runs."""
        self.base.require(jnp.logical_or(ok, jnp.logical_not(self.running)), message)

    def _counted(self, values: Any, how: How) -> Any:
        return jnp.where(self.running, values, NEUTRAL[how])


ALONE = Across()


@dataclass
class Replay(Across):
    """The reductions inside a kernel: known answers are given, the first unknown one is asked.

    `whole` says that this program sees whole parameters, so that array questions need no answer
    from outside. `mask` (elementwise, or True) tells which elements are there to be counted.
    """

    answers: Sequence[Any] = ()
    whole: bool = True
    mask: Any = True
    given: int = 0
    asked: dict[str, int] = field(default_factory=dict)
    required: list[tuple[Any, str]] = field(default_factory=list)

    def array(self, values: Any, how: How = "sum") -> Any:
        """Reduce over this parameter, or ask to have it reduced."""
        if self.whole:
            return told(reduced(self._masked(values, how), how), how)
        return self._next(Ask("array", how, ""), values)

    def model(self, values: Any, how: How = "sum") -> Any:
        """Ask to have it reduced over all parameters under this rule."""
        # The n-th question of a class is one question, whoever else asks in between.
        self.asked[self.owner] = number = self.asked.get(self.owner, -1) + 1
        return self._next(Ask("model", how, f"{self.owner}#{number}"), values)

    def require(self, ok: Any, message: str) -> None:
        """Note what is insisted on; the engine looks at it before it writes anything."""
        self.required.append((ok, message))

    def _masked(self, values: Any, how: How) -> Any:
        return values if self.mask is True else jnp.where(self.mask, values, NEUTRAL[how])

    def _next(self, ask: Ask, values: Any) -> Any:
        if self.given == len(self.answers):
            raise Question(ask, self._masked(values, ask.how))
        self.given += 1
        return told(self.answers[self.given - 1], ask.how)
