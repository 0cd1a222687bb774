"""A program of like parameters, read for one of them.

Each value in it belongs to one parameter, or is common to all, or is part of a sum (a maximum, a
minimum, an "and", an "or") over all of them, for which a rule asks by `across.model`. A program in
which parameters meet in any other way has no meaning for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import RuleTypeError
from ..rules.across import Across
from .programs import is_literal, programs_in

MEET = {"add": "sum", "add_any": "sum", "max": "max", "min": "min", "and": "and", "or": "or"}
REDUCE = {f"reduce_{how}": how for how in ("sum", "max", "min", "and", "or")}
NEUTRAL = {"sum": 0, "max": -np.inf, "min": np.inf, "and": True, "or": False}
CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2")


class Term(NamedTuple):
    """A value in a program: equal ids are equal expressions, each of its own parameter.

    of: the parameter that it belongs to; None if it is common to all. value: the array, where it
    is computed: for what is common or the first parameter's.
    """

    id: int
    of: int | None = None
    value: Any = None


class Meeting(NamedTuple):
    """What parameters meet in, as long as not all are there: the `term` of each in `seen`."""

    how: str
    term: Term
    seen: frozenset[int]


class Reader:
    """Reads programs: with `across` it computes, without it only tells expressions apart.

    met: how many reductions over all parameters there were.
    """

    def __init__(self, across: Across | None = None, shape: tuple[int, ...] = ()) -> None:
        self.across, self.shape = across, shape
        self.ids: dict[Any, int] = {}
        self.peers = self.met = 0

    def read(self, program: Any, peers: int, terms: Sequence[Term]) -> list[Term]:
        """Return what a program for so many parameters makes of its arguments."""
        self.peers = peers
        outs = self._run(program.jaxpr, program.consts, terms)
        if any(isinstance(out, Meeting) for out in outs):
            refuse("the values of some parameters together")
        return outs

    def term(self, *expression: Any, of: int | None = None, value: Any = None) -> Term:
        """Return the term for an expression; equal ones have one id."""
        return Term(self.ids.setdefault(expression, len(self.ids)), of, value)

    def _run(self, jaxpr: Any, consts: Sequence[Any], terms: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(zip(jaxpr.invars, terms, strict=True))
        env.update(zip(jaxpr.constvars, map(self._const, consts), strict=True))

        def at(v: Any) -> Any:
            return self._const(v.val) if is_literal(v) else env[v]

        for eqn in jaxpr.eqns:
            env.update(
                zip(eqn.outvars, self._equation(eqn, list(map(at, eqn.invars))), strict=True)
            )
        return list(map(at, jaxpr.outvars))

    def _const(self, value: Any) -> Term:
        known = None if self.across is None else value
        return self.term("const", *content(value), value=known)

    def _equation(self, eqn: Any, ins: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        if name in CALLS:
            return self._run(*programs_in(eqn.params)[0], ins)
        if name in MEET and (rest := _without_neutral(eqn, ins, NEUTRAL[MEET[name]])) is not None:
            return [rest]
        owners = {term.of for term in ins if isinstance(term, Term)} - {None}
        if len(owners) < 2 and not any(isinstance(term, Meeting) for term in ins):
            return self._apart(eqn, ins, next(iter(owners), None))
        if name in MEET and eqn.outvars[0].aval.shape == ():
            return [self._met(MEET[name], ins, name)]
        if name == "concatenate" and all(v.aval.shape == (1,) for v in eqn.invars):
            return [self._met("stack", ins, name)]
        if name in REDUCE and isinstance(ins[0], Meeting) and len(ins[0].seen) == self.peers:
            return [self._whole(REDUCE[name], ins[0].term)]
        if name != "cond":
            refuse(f"`{name}`")
        return self._either(eqn, ins)

    def _apart(self, eqn: Any, ins: list[Term], of: int | None) -> list[Any]:
        """Return the results of an equation that has to do with one parameter at most."""
        key = (eqn.primitive.name, *_static(eqn.params), *((t.id, t.of is None) for t in ins))
        values: Sequence[Any] = [None] * len(eqn.outvars)
        if self.across is not None and of in (None, 0):
            values = eqn.primitive.bind(*[t.value for t in ins], **eqn.params)
            values = values if eqn.primitive.multiple_results else [values]
        return [self.term(*key, i, of=of, value=value) for i, value in enumerate(values)]

    def _met(self, how: str, ins: list[Any], name: str) -> Any:
        """Return what the same value of several parameters makes together."""
        parts = []
        for term in ins:
            if isinstance(term, Term):
                if term.of is None:
                    refuse(f"`{name}`")
                term = Meeting(how, term, frozenset((term.of,)))
            parts.append(term)
        seen: frozenset[int] = frozenset().union(*(part.seen for part in parts))
        alike = {(part.how, part.term.id) for part in parts}
        if len(alike) > 1 or parts[0].how != how or len(seen) < sum(len(p.seen) for p in parts):
            refuse(f"`{name}`")
        first = next((p.term for p in parts if 0 in p.seen), parts[0].term)
        if how == "stack" or len(seen) < self.peers:
            return Meeting(how, first, seen)
        return self._whole(how, first)

    def _whole(self, how: str, term: Term) -> Term:
        """Return a reduction over all parameters, which is common to them."""
        self.met += 1
        value = None if self.across is None else self._over_model(self.across, how, term.value)
        return self.term("across", how, term.id, value=value)

    def _over_model(self, across: Across, how: str, value: Any) -> Any:
        """Ask for a reduction over all parameters, of one value of each."""
        value = jnp.reshape(value, ())
        if jnp.issubdtype(value.dtype, jnp.complexfloating):
            refuse("a sum of complex numbers")
        real = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(jnp.float32)
        if how == "sum" and int(np.prod(self.shape)):
            # What is reduced are elements: the value stands at the first, and nothing elsewhere.
            real = jnp.zeros(self.shape, real.dtype).at[(0,) * len(self.shape)].set(real)
        plain = {"and": "min", "or": "max"}.get(how, how)
        answer = across.model(real, plain)  # type: ignore[arg-type]
        return answer.astype(value.dtype) if value.dtype != bool else answer > 0

    def _either(self, eqn: Any, ins: list[Any]) -> list[Any]:
        """Return the results of a `cond`, for which all its branches are read."""
        index, *rest = ins
        if not isinstance(index, Term) or index.of is not None:
            refuse("`cond`")
        branches = [self._run(b.jaxpr, b.consts, rest) for b in eqn.params["branches"]]
        found = []
        for outs in zip(*branches, strict=True):
            owners = {None if isinstance(out, Meeting) else out.of for out in outs} - {None}
            if len(owners) > 1 or any(isinstance(out, Meeting) for out in outs):
                refuse("`cond`")
            of = next(iter(owners), None)
            value = None
            if self.across is not None and of in (None, 0):
                value = jax.lax.select_n(index.value, *(out.value for out in outs))
            key = ((out.id, out.of is None) for out in outs)
            found.append(self.term("cond", index.id, *key, of=of, value=value))
        return found


def refuse(what: str) -> NoReturn:
    """Raise the error for parameters that mix."""
    raise RuleTypeError(
        "what it does to one parameter depends on the others, in another way than by a sum, "
        f"maximum or minimum of the same number of each (at {what})"
    )


def _without_neutral(eqn: Any, ins: list[Any], neutral: Any) -> Any:
    """Return the other operand where one is what a reduction begins with, as `sum` does with 0."""
    out = eqn.outvars[0].aval
    for v, other, term in zip(eqn.invars, reversed(eqn.invars), reversed(ins), strict=True):
        same = (other.aval.shape, other.aval.dtype) == (out.shape, out.dtype)
        if is_literal(v) and same and np.ndim(v.val) == 0 and bool(v.val == neutral):
            return term
    return None


def content(value: Any) -> tuple[Any, ...]:
    """Return what tells one constant from another."""
    if isinstance(value, Tracer) or not hasattr(value, "__array__"):
        return (id(value),) if isinstance(value, Tracer) else (type(value), value)
    try:
        held = np.asarray(value)
    except TypeError:  # a key for random numbers
        return (id(value),)
    return str(held.dtype), held.shape, held.tobytes()


def _static(params: dict[str, Any]) -> Iterator[Any]:
    """Yield what tells one equation from another of its primitive; programs in it as text."""
    for name, value in sorted(params.items()):
        yield name, str(value)
    yield from (id(const) for _, consts in programs_in(params) for const in consts)
