"""The shortest way of a step: the last one once more, of a model of one unit of parameters.

It calls hardly any other function, as for few parameters that would cost as much as what they do.
It is open where the model is as the last step left it, so that only gradients are new; what else is
unusual, the program refuses.
"""

from __future__ import annotations

from operator import getitem
from sys import getrefcount
from typing import Any

from ..state import State
from ..state.engine import ALONE


def repeated_step(state: State, trees: tuple[Any, ...]) -> bool:
    """Take the step of `update_` once more, and tell whether it could be taken; if not, nothing is.

    trees: the model, and the orders of gradients.
    """
    box = state._box
    last, placed = box.last, box.placed
    nest = last.straight
    if nest is None or state._at:
        return False
    try:
        program, begins = last.programs[0, True, True]
        holders = nest.holders(trees)
        if holders is None:
            return False
        xs, *orders = last.parts[0](tuple(map(getitem, holders, nest.names)))
        if tuple(map(id, xs)) != placed:
            return False
        for grads in orders:
            if set(map(type, grads)) != last.classes or not set(map(id, grads)).isdisjoint(placed):
                return False
        (held,) = box.arrays
        rest = held[1:]
        if max(map(getrefcount, rest)) > ALONE:
            return False
        rest, params = program(held[0], rest, xs, orders, begins)
    except (LookupError, TypeError, ValueError, RuntimeError):
        return False
    if type(params[0]) not in last.classes:
        return False  # somebody's jit is tracing, and so our program
    held[1:] = rest
    box.placed = tuple(map(id, params))
    for holder, name, x in zip(holders, nest.names, params, strict=False):  # not gradients
        holder[name] = x
    return True
