"""summary: a state as a table, a line for each parameter."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from ..state import State
from ..state.spec import struct_of
from ..state.state import checked
from ..tree.paths import text_of

TITLES = ("path", "shape", "dtype", "rule", "frozen", "steps", "bytes")
WIDEST = 60


def summary(state: State) -> None:
    """Print a state as a table: path, shape, dtype, rule, frozen, steps taken, bytes of state.

    Args:
        state: the whole, or a part of it.

    Returns:
        Nothing; the table is printed.

    Raises:
        ArgumentError: the argument is not a state.

    Examples:
        >>> summary(setup(Momentum(), {"w": np.ones((2, 3)), "b": np.ones(3)}))
        path   shape   dtype    rule                         frozen  steps  bytes
        b      [3]     float64  Momentum(eta=0.01, rho=0.9)               0     44
        w      [2, 3]  float64  Momentum(eta=0.01, rho=0.9)               0     68
        total  9                                                               112
    """
    rows = list(_rows(checked(state)))
    layout, at = state._box.layout, state._at
    elements = sum(
        int(np.prod(p.shape)) for p in layout.params if any(q[: len(at)] == at for q in p.paths)
    )
    rows.append(("total", str(elements), "", "", "", "", str(sum(int(r[-1] or 0) for r in rows))))
    widths = [max(map(len, column)) for column in zip(TITLES, *rows, strict=True)]
    for row in (TITLES, *rows):
        left = [cell.ljust(width) for cell, width in zip(row[:5], widths[:5], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(row[5:], widths[5:], strict=True)]
        print("  ".join([*left, *right]).rstrip())  # noqa: T201 - it is for people to look at


def _rows(state: State) -> Iterator[tuple[str, ...]]:
    box, at = state._box, state._at
    for i, param in enumerate(box.layout.params):
        places = [path[len(at) :] for path in param.paths if path[: len(at)] == at]
        if not places:
            continue
        unit = box.layout.units[box.layout.where(i)[0]]
        structs = jax.tree.leaves(struct_of(unit.spec.template, param.dtype, param.shape))
        size = sum(s.size * s.dtype.itemsize for s in structs)
        size += unit.spec.template.width * (8 if unit.spec.wide else 4)
        rule = repr(box.rule(i))
        yield (
            text_of(places[0]),
            str(list(param.shape)),
            param.dtype,
            rule if len(rule) <= WIDEST else f"{rule[: WIDEST - 3]}...",
            "frozen" if param.frozen else "",
            str(box.count(i)),
            str(size),
        )
        for path in places[1:]:
            yield (text_of(path), f"tied to {text_of(places[0])}", "", "", "", "", "")
