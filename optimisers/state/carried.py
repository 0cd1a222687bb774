"""What a unit carries from step to step: a flat list in a state and between programs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from .spec import Spec


class Carried(NamedTuple):
    """What a unit carries from step to step, beside its hyper-parameters.

    In a pack: scalars [k, columns] per table, moments [rows, WIDTH] per array of the state. In a
    bundle: for each parameter a tuple of [columns] tables, and a tuple of arrays.
    """

    scalars: Any
    moments: Any


def opened(spec: Spec, rest: Sequence[Any]) -> Carried:
    """Return the carried arrays from a flat list: all scalar tables, and after them all moments."""
    tables, moments, cut = _sizes(spec)
    if spec.packed:
        return Carried(tuple(rest[:cut]), tuple(rest[cut:]))
    each = range(len(spec.shapes))
    return Carried(
        tuple(tuple(rest[i * tables : (i + 1) * tables]) for i in each),
        tuple(tuple(rest[cut + i * moments : cut + (i + 1) * moments]) for i in each),
    )


def flat(spec: Spec, carried: Carried) -> list[Any]:
    """Return the carried arrays as a flat list."""
    if spec.packed:
        return [*carried.scalars, *carried.moments]
    return list(chain(*carried.scalars, *carried.moments))


def of_one(spec: Spec, rest: Sequence[Any], i: int) -> list[Any]:
    """Return the flat list of one parameter of a bundle."""
    tables, moments, cut = _sizes(spec)
    begin = cut + i * moments
    return [*rest[i * tables : (i + 1) * tables], *rest[begin : begin + moments]]


def put_one(spec: Spec, rest: list[Any], i: int, new: Sequence[Any]) -> None:
    """Put the flat list of one parameter back into that of its bundle."""
    tables, moments, cut = _sizes(spec)
    begin = cut + i * moments
    rest[i * tables : (i + 1) * tables], rest[begin : begin + moments] = new[:tables], new[tables:]


def _sizes(spec: Spec) -> tuple[int, int, int]:
    """Return how many tables and moments there are for each parameter, and where moments begin."""
    tables = len(spec.form.tables)
    return tables, spec.form.moments, tables if spec.packed else tables * len(spec.shapes)
