"""update and update_: one step of every parameter that has a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, Literal

from ..errors import ArgumentError
from ..state import State
from ..state.plan import known_plan
from ..state.state import checked
from ..tree import rebuild
from .general import general_step, prepared
from .held import MISSING, flattened_all
from .quick import quick_step
from .repeat import repeated_step

Tied = Literal["parts", "total"]


def update(
    state: State, model: Any, grads: Any = MISSING, *higher: Any, tied: Tied = "parts"
) -> tuple[State, Any]:
    """Return the state and the model after one step; the arguments are left as they were.

    Args:
        state: from `setup`, or a part of it with the same part of the model.
        model: as it was set up: same names, shapes and dtypes.
        grads: nested like the model, names matched by name, sequences by position. None, at a
            parameter or at a whole branch, means no gradient: nothing there moves, state included.
            Each gradient has its parameter's shape, any real dtype (complex for complex), any
            library. Left out: those that the arrays of the model hold themselves, torch's and
            tinygrad's in `.grad`, and "total" holds for tied ones.
        *higher: further gradients, for rules that take them.
        tied: "parts": gradients at the places of a tied parameter are contributions and are added.
            "total": each is the whole already (torch's `.grad`, TensorFlow, tinygrad); the first
            that is not None counts.

    Returns:
        `(state, model)`: new ones. Parameters that did not move are the same arrays as before.

    Raises:
        StructureError: the gradient has a missing item, an unknown key, another container.
        ShapeError: a gradient of another shape; shapes are never broadcast.
        ArgumentError: arguments swapped; a gradient that is no array; gradients left out where
            the model's arrays hold none.
        DtypeError: a complex gradient of a real parameter; a parameter whose dtype changed.
        StateError: the state of another model, deleted arrays, a vmapped state outside vmap.
        RuleError: a rule needs a second gradient and got none.
        NonFiniteError: a rule was told to insist on finite numbers.

    Examples:
        >>> model = {"w": np.array([1.0, 2.0]), "act": np.tanh}
        >>> state = setup(Descent(0.1), model)
        >>> state, model = update(state, model, {"w": np.array([1.0, 1.0]), "act": None})
        >>> model["w"]
        array([0.9, 1.9])
    """
    return _stepped(state, (model, grads, *higher), tied, write=False)


def update_(
    state: State, model: Any, grads: Any = MISSING, *higher: Any, tied: Tied = "parts"
) -> tuple[State, Any]:
    """Take the same step as `update`, reusing the memory of the state and the model.

    NumPy and torch parameters are written in place; dicts, lists and other containers that can be
    written keep their identity. The memory of JAX parameters is given to the results, so that the
    old arrays are deleted, also where something else than the given model still holds them: use
    what is returned. The given state is itself changed, and returned. Gradients are never written.
    On tracers (inside `jax.jit` and the like) this is `update`.

    Args:
        state: as in `update`.
        model: as in `update`.
        grads: as in `update`.
        *higher: as in `update`.
        tied: as in `update`.

    Returns:
        `(state, model)`: the given state, and the model with its new parameters.

    Raises:
        AliasError: two NumPy or torch parameters overlap in memory without being one parameter.
        OptimiserError: whatever `update` raises; always before anything is written.

    Examples:
        >>> model = {"w": np.array([1.0, 2.0])}
        >>> w, state = model["w"], setup(Descent(0.1), model)
        >>> _ = update_(state, model, {"w": np.array([1.0, 1.0])})
        >>> w
        array([0.9, 1.9])
    """
    trees = (model, grads, *higher)
    known = type(state) is State and state._box.last is not None and tied == "parts"
    if known and repeated_step(state, trees):
        return state, model
    return _stepped(state, trees, tied, write=True)


def _stepped(state: State, trees: tuple[Any, ...], tied: str, write: bool) -> tuple[State, Any]:
    """Take a step; trees: the model, and the orders of gradients."""
    known = None
    if type(state) is State and tied in ("parts", "total") and trees[1] is not MISSING:
        known = known_plan(state._box.layout, state._at, trees)
    if known is None:
        model, *grads = trees
        check_arguments(state, model, grads, tied)
        flat, plan, tied = flattened_all(state._box.layout, state._at, model, grads, tied)
    else:
        flat, plan = known
    done = quick_step(state, flat, plan, write)
    if done is None:
        call = prepared(state, flat, plan, tied, write)
        done, write = general_step(state, call), call.write
    if write and all(map(is_, flat, done[1])):  # written in place
        return done[0], trees[0]
    return done[0], rebuild(trees[0], plan.program, done[1], write)


def check_arguments(state: Any, model: Any, grads: Sequence[Any], tied: str) -> None:
    """Raise where arguments are swapped, missing, or of the wrong kind."""
    right = isinstance(state, State) and State not in map(type, (model, *grads))
    if right and tied in ("parts", "total"):
        return
    if isinstance(model, State) and not isinstance(state, State):
        raise ArgumentError("arguments swapped: call update(state, model, grads), the state first")
    checked(state)
    if isinstance(model, State) or any(isinstance(g, State) for g in grads):
        raise ArgumentError("got a State in another place; call update(state, model, grads)")
    raise ArgumentError(f'tied must be "parts" or "total", got {tied!r}')
