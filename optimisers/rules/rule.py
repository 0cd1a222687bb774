"""What every rule is: a frozen dataclass with `init` and `apply` on one array."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.caching import cached
from ..arrays.numbers import scalar_dtype
from ..errors import RuleError, RuleTypeError
from .across import ALONE, Across
from .checks import adjusted, checked_fields
from .fields import Fields, fields_of, with_fields
from .widen import widened


class Step(NamedTuple):
    """What `apply` may return instead of a plain step, when a step alone cannot say it.

    Attributes:
        dx: the step, subtracted from the parameter unless `value` is given.
        run: whether the rules after this one run (False: they and the parameter stand still).
        value: what the parameter becomes, exactly; x - (x - y) is not y in floating point.
        turn: for rules that do not run, whether this call counts for those after this one that
            look at `present`: an AccumGrad after an AccumGrad counts what the first passes on.
    """

    dx: Any
    run: Any = True
    value: Any = None
    turn: Any = True


class Flow(NamedTuple):
    """What flows along a chain for one parameter: the gradient first, then the step so far.

    count: how many steps were applied to the parameter so far, for schedules.
    """

    dx: Any
    higher: tuple[Any, ...] = ()
    run: Any = True
    value: Any = None
    across: Across = ALONE
    dtype: Any = None
    turn: Any = True
    count: Any = None


class Asks(NamedTuple):
    """What a class's `apply` takes beyond `(state, x, dx)`."""

    least: int
    most: float
    across: bool
    present: bool


class Rule(Fields):
    """Turn the gradient of one array into the step that is subtracted from it.

    Subclasses are frozen dataclasses. Fields annotated `float` or `tuple[float, ...]` are data,
    the others are compiled in. `elementwise = True` promises that each element of the state and of
    the step depends on the same element of x and dx only (and that `x.shape` is not looked at);
    such rules run on many small arrays at once.

    `apply` may take more gradients (`apply(self, state, x, dx, dx2)`), reductions
    (keyword-only `across`), and whether there is a gradient at all (keyword-only `present`: such a
    rule also runs when there is none, with dx = 0).

    `limits` are the ranges of numbers by field, `advice` is what the error for an unknown one adds.
    """

    elementwise: ClassVar[bool] = False
    takes_complex: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}
    advice: ClassVar[str] = ""

    def init(self, x: Any) -> Any:
        """Return the state for a parameter `x`: any pytree of arrays; scalars count as scalars."""
        return ()

    def apply(self, state: Any, x: Any, dx: Any) -> tuple[Any, Any]:
        """Return the next state and the step (or a `Step`); nothing is written to."""
        raise NotImplementedError(f"{type(self).__name__} defines no apply(state, x, dx)")

    def packs(self, shape: tuple[int, ...], dtype: Any) -> bool:
        """Tell whether parameters of a shape and dtype may be cut into rows, and computed so."""
        return self.elementwise

    @property
    def circle(self) -> str:
        """Under what name `across.model` asks: what is asked under one name is reduced together."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def adjust(self, **fields: Any) -> Any:
        """Return a rule like this one with other values for some of its fields.

        Raises:
            RuleError: a name that this rule does not have (the nearest is suggested), or a value
                out of range.
        """
        return adjusted(self, fields)

    def adjust_state(self, old: Any, state: Any) -> Any:
        """Return the state after `old` was adjusted to this rule; most states stay as they are."""
        return state

    def advance(self, state: Any, x: Any, flow: Flow) -> tuple[Any, Flow]:
        """Take one step inside a chain: `apply`, held where the flow does not run."""
        cls: Any = type(self)
        asks = asks_of(cls)
        rule = scheduled(self, flow.count, x.dtype)
        extra: dict[str, Any] = {"present": flow.run} if asks.present else {}
        if asks.across:
            extra["across"] = flow.across.under(self.circle, flow.run)
        new, out = rule.apply(state, x, flow.dx, *_higher(self, asks, flow.higher), **extra)
        step = out if isinstance(out, Step) else Step(out)
        mine = flow.turn if asks.present else flow.run
        run, turn = both(mine, step.run), both(flow.turn, step.turn)
        new = hold(mine, new, state)
        return new, flow._replace(dx=step.dx, run=run, value=step.value, turn=turn)

    def __init_subclass__(cls, widen: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, first in (("init", 0), ("apply", 1)):
            if widen and name in cls.__dict__:
                setattr(cls, name, widened(cls.__dict__[name], first))

    def __post_init__(self) -> None:
        for name, value in checked_fields(self).items():
            object.__setattr__(self, name, value)


class Wrapper(Rule, widen=False):
    """A rule made of rules: `advance` is written by the subclass, `apply` follows from it.

    `outside` is 0 for a wrapper that may stand anywhere; others stand only inside wrappers with a
    higher number, because elsewhere they would not see what they are for.
    """

    outside: ClassVar[int] = 0

    def check_inside(self, rule: Any) -> None:
        """Raise unless `rule` is one that may stand inside this one."""
        name = type(self).__name__
        if not isinstance(rule, Rule):
            hint = f"; write {name}(*rules)" if isinstance(rule, tuple | list) else ""
            raise RuleTypeError(f"{name} takes rules, got {rule!r}{hint}")
        if isinstance(rule, Wrapper) and rule.outside >= max(self.outside, 1):
            inner = type(rule).__name__
            cure = f"write {inner}({name}(...))" if inner != name else "one is enough"
            raise RuleTypeError(
                f"{inner} cannot stand inside {name}, because it goes around whole rules; {cure}"
            )

    def packs(self, shape: tuple[int, ...], dtype: Any) -> bool:
        """Tell whether every rule inside may be computed in rows."""
        inside = (value if kind == "rules" else (value,) for _, value, kind in fields_of(self)
                  if kind in ("rule", "rules"))  # fmt: skip
        return self.elementwise and all(r.packs(shape, dtype) for rs in inside for r in rs)

    def apply(self, state: Any, x: Any, dx: Any, *higher: Any) -> tuple[Any, Any]:
        """Run the rules inside on one array; returns the next state and the step."""
        dtype = np.dtype(getattr(x, "dtype", np.float32))

        def wide(self: Wrapper, state: Any, x: Any, dx: Any, *higher: Any) -> tuple[Any, Flow]:
            return self.advance(state, x, Flow(dx, higher, dtype=dtype))

        state, flow = widened(wide, 1)(self, state, x, dx, *higher)
        plain = flow.run is True and flow.value is None
        return state, flow.dx if plain else Step(flow.dx, flow.run, flow.value, flow.turn)


def start(rule: Rule, x: Any) -> Any:
    """Return a rule's first state, schedules as they are before the first step."""
    return scheduled(rule, 0, jnp.asarray(x).dtype).init(x)


def restart(rule: Rule, old: Rule, state: Any) -> Any:
    """Return the state of `old`, of the same class, as it is once `rule` has taken its place."""
    return rule.adjust_state(old, state)


def schedules_of(rule: Rule) -> dict[str, Callable[[Any], Any]]:
    """Return the fields of a rule (not of the rules inside it) that are functions of the count."""
    return {n: value for n, value, kind in fields_of(rule) if kind == "number" and callable(value)}


def scheduled(rule: Rule, count: Any, dtype: Any) -> Rule:
    """Return the rule with the values that its own schedules have after `count` steps."""
    functions = schedules_of(rule)
    if not functions:
        return rule
    if count is None:
        raise RuleError(
            f"{type(rule).__name__} follows a schedule, a function of the number of steps, which "
            "only a state counts; use setup and update"
        )
    # Schedules are other people's code, and hyper-parameters are as wide as setup makes them.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        count = jnp.asarray(count, jnp.int32)
        values = {
            name: jnp.asarray(f(count)).astype(scalar_dtype(dtype)) for name, f in functions.items()
        }
    found: Rule = with_fields(rule, values)
    return found


def check_schedules(rule: Rule) -> None:
    """Raise where a schedule cannot be compiled, or gives something else than a number."""
    for name, function in schedules_of(rule).items():
        where = f"{type(rule).__name__}: the schedule of {name}"
        try:
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                got = jax.eval_shape(function, jax.ShapeDtypeStruct((), jnp.int32))
        except Exception as error:  # whatever a user's function raises
            reason = str(error).strip().partition("\n")[0]
            raise RuleTypeError(
                f"{where} cannot be traced by JAX ({type(error).__name__}: {reason}); "
                "write it with jax.numpy, jnp.where in place of if"
            ) from error
        if getattr(got, "shape", None) != () or not jnp.issubdtype(got.dtype, jnp.number):
            raise RuleTypeError(f"{where} must give one number, got {got}")


def both(a: Any, b: Any) -> Any:
    """Return `a and b` for flags that are either True or traced booleans."""
    if a is True:
        return b
    return a if b is True else jnp.logical_and(a, b)


def hold(run: Any, new: Any, old: Any) -> Any:
    """Return `new` where `run`, else `old`, over two states of one structure."""
    if run is True:
        return new
    return jax.tree.map(lambda n, o: jnp.where(run, n, o), new, old)


@cached
def asks_of(cls: type[Rule]) -> Asks:
    """Read from the signature of `apply` what it takes beyond `(self, state, x, dx)`."""
    signature = inspect.signature(cls.apply).parameters.values()
    places = [p for p in signature if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][4:]
    endless = any(p.kind is p.VAR_POSITIONAL for p in signature)
    names = {p.name for p in signature if p.kind is p.KEYWORD_ONLY}
    least = sum(p.default is p.empty for p in places)
    return Asks(
        least, float("inf") if endless else len(places), "across" in names, "present" in names
    )


def _higher(rule: Rule, asks: Asks, higher: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(higher) < asks.least:
        raise RuleError(
            f"{type(rule).__name__} needs {asks.least + 1} gradients, got {len(higher) + 1}; "
            "call update(state, model, grads, grads2)"
        )
    return higher[: int(min(asks.most, len(higher)))]
