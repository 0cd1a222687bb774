"""What a unit carries from step to step: a flat list in a state and between programs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from .spec import Spec


class Carried(NamedTuple):
    """What a unit carries from step to step, beside its hyper-parameters.

    scalars: [k, columns] per table. moments: in a pack [rows, WIDTH] per array of the state, in a
    bundle for each parameter a tuple of arrays.
    """

    scalars: Any
    moments: Any


def opened(spec: Spec, rest: Sequence[Any]) -> Carried:
    """Return the carried arrays from a flat list: all scalar tables, and after them all moments."""
    cut = len(spec.form.tables)
    if spec.packed:
        return Carried(tuple(rest[:cut]), tuple(rest[cut:]))
    each = (_moments(spec, i) for i in range(len(spec.shapes)))
    return Carried(tuple(rest[:cut]), tuple(tuple(rest[mine]) for mine in each))


def flat(spec: Spec, carried: Carried) -> list[Any]:
    """Return the carried arrays as a flat list."""
    if spec.packed:
        return [*carried.scalars, *carried.moments]
    return list(chain(carried.scalars, *carried.moments))


def of_one(spec: Spec, rest: Sequence[Any], i: int) -> list[Any]:
    """Return the flat list of one parameter of a bundle: its moments, and everybody's scalars."""
    return [*rest[: len(spec.form.tables)], *rest[_moments(spec, i)]]


def with_one(spec: Spec, rest: Sequence[Any], i: int, new: Sequence[Any]) -> list[Any]:
    """Return the flat list of a bundle with that of one parameter put back."""
    found, cut = list(rest), len(spec.form.tables)
    found[:cut], found[_moments(spec, i)] = new[:cut], new[cut:]
    return found


def _moments(spec: Spec, i: int) -> slice:
    begin = len(spec.form.tables) + i * spec.form.moments
    return slice(begin, begin + spec.form.moments)
