"""to_optax: a rule as a transformation of Optax."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..api.adjust import adjust
from ..api.assign import Rules
from ..api.found import Ties
from ..api.read import steps
from ..api.setup import setup
from ..arrays.needs import need
from ..errors import ArgumentError
from ..rules.fields import numbers_of
from ..rules.rule import Rule
from ..state import State

if TYPE_CHECKING:
    import optax  # type: ignore[import-untyped]


def to_optax(rule: Rules, *, ties: Ties = ()) -> optax.GradientTransformationExtraArgs:
    """Return the transformation of Optax that moves parameters as a rule of ours would.

    It stands wherever Optax's own do: in `optax.chain`, Flax's `TrainState`, `nnx.Optimizer`, under
    `jit` and `scan`. Its state is the one that `setup` makes; `adjust`, `freeze` and `thaw` work
    on it.

    Args:
        rule: what `setup` takes: a rule, rules by pattern, or a function of path and array. Arrays
            in it, as `optax.inject_hyperparams` gives them, are followed from step to step; other
            numbers are those of the state.
        ties: as in `setup`, but that one array object at two places are two parameters: that is
            what they are in Optax.

    Returns:
        The transformation. Its update needs `params`, and ignores further arguments. The updates of
        16-bit parameters are float32, which `optax.apply_updates` adds without loss; a parameter
        that stands still has zeros.

    Raises:
        MissingLibraryError: Optax is not installed.
        ArgumentError: in `init`, not a rule; a function whose rules hold arrays. In `update`, no
            params.
        OptimiserError: whatever else `setup` and `update` raise.

    Examples:
        >>> import optax
        >>> tx = optax.chain(optax.clip(1.0), to_optax(Descent(0.5)))
        >>> params = {"w": jnp.array([1.0, 2.0])}
        >>> updates, _ = tx.update({"w": jnp.array([1.0, 5.0])}, tx.init(params), params)
        >>> optax.apply_updates(params, updates)
        {'w': Array([0.5, 1.5], dtype=float32)}
    """
    library = need("optax", "make a transformation of Optax", '"optimisers[interop]"')

    def init(params: Any) -> State:
        return setup(_checked(rule), _plain(params), ties=ties)

    def update(updates: Any, state: State, params: Any = None, **_: Any) -> tuple[Any, State]:
        if params is None:
            raise ArgumentError(
                "a rule steps from where the parameters are; call tx.update(grads, state, params)"
            )
        xs = _plain(params)
        state, moves = steps(_followed(state, rule, xs, ties), xs, _plain(updates))
        new = jax.tree.map(_update, xs, moves, is_leaf=lambda x: x is None)
        return jax.tree.unflatten(jax.tree.structure(params), jax.tree.leaves(new)), state

    made: optax.GradientTransformationExtraArgs = library.GradientTransformationExtraArgs(
        init, update
    )
    return made


def _plain(tree: Any) -> Any:
    """Return a tree as it may be after a step: of JAX arrays, and without variables around them.

    `nnx.Optimizer` gives its `nnx.Param` to `init`, and what they hold to `update`.
    """
    nnx: Any = sys.modules.get("flax.nnx")
    tree = tree if nnx is None else nnx.as_pure(tree)
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, tree)


def _update(param: Any, move: Any) -> Any:
    if move is not None:
        return -move
    return jnp.zeros_like(param) if isinstance(param, jax.Array) else param


def _holds_arrays(rule: Any) -> bool:
    return isinstance(rule, Rule) and any(isinstance(v, jax.Array) for v in numbers_of(rule))


def _checked(rule: Any) -> Any:
    """Return a rule; if it is a function, one that refuses numbers which nobody would follow."""
    if isinstance(rule, Rule | Mapping) or not callable(rule):
        return rule

    def checked(path: Any, x: Any) -> Any:
        found = rule(path, x)
        if _holds_arrays(found):
            raise ArgumentError(
                f"arrays in the rule of a function are not followed, got {found!r}; "
                "give to_optax a rule, or a mapping from pattern to rule"
            )
        return found

    return checked


def _followed(state: State, rule: Any, params: Any, ties: Ties) -> State:
    """Return the state with the numbers of the rule where these are arrays: others may come."""
    if _holds_arrays(rule):
        return adjust(state, rule)  # type: ignore[no-any-return]
    if isinstance(rule, Mapping) and any(map(_holds_arrays, rule.values())):
        return setup(rule, params, ties=ties, keep=state)
    return state
