"""Whether a transformation can be a rule: does it treat each of several like parameters alike?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import RuleTypeError
from .programs import Program
from .reader import Reader, Term


class Alike(NamedTuple):
    """The program of two like parameters, and whether it reduces over all of them."""

    program: Program
    reduces: bool


def alike(trace: Callable[[int], Program]) -> Alike:
    """Return the program of a transformation, which `trace` traces for so many like parameters.

    Raises:
        RuleTypeError: one parameter depends on the others, on its place among them, or on how many
            they are.
    """
    reader = Reader()
    programs = [trace(peers) for peers in (2, 3)]
    two, three = (_results(reader, program) for program in programs)
    if two != three:
        raise RuleTypeError(
            "what it does to one parameter depends on how many parameters there are"
        )
    return Alike(programs[0], reader.met > 0)


def _results(reader: Reader, program: Program) -> list[int]:
    """Return the expressions of first state, next state and update, which are alike for each."""
    peers = range(program.peers)
    xs = [reader.term("x", of=i) for i in peers]
    grads = [reader.term("g", of=i) for i in peers]
    state = [reader.term("state", place, of=owner) for owner, place in program.leaves]
    before, first = reader.met, reader.read(program.init, program.peers, xs)
    if reader.met > before:
        raise RuleTypeError("its first state depends on all parameters together")
    outs = reader.read(program.update, program.peers, [*state, *grads, *xs])
    updates = [(i, 0) for i in peers]
    n = len(state)
    return [
        *_each(first, program.leaves),
        *_each(outs[:n], program.leaves),
        *_each(outs[n:], updates),
    ]


def _each(terms: Sequence[Term], places: Sequence[tuple[int | None, int]]) -> list[int]:
    """Return the expression at each place, the same for each parameter and of it alone."""
    found: dict[int, int] = {}
    for term, (owner, place) in zip(terms, places, strict=True):
        if term.of not in (None, owner):
            raise RuleTypeError("what it keeps for one parameter, or for all, is another's")
        if found.setdefault(place, term.id) != term.id:
            raise RuleTypeError("it treats like parameters differently, by their place in the tree")
    return list(found.values())
