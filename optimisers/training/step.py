"""TrainState and make_step: one step, for those who write their own loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import optree
from optree.registry import __GLOBAL_NAMESPACE as GLOBAL_NAMESPACE

from ..ad.backend import Backend
from ..ad.find import backend_of
from ..api.update import update, update_
from ..errors import ArgumentError
from ..state import State
from ..state.state import checked
from .owning import owned


@dataclass(frozen=True)
class TrainState:
    """What a training carries from step to step: a pytree.

    Args:
        model: what is trained.
        state: its optimiser's, from `setup`.
        count: how many steps were taken.

    Examples:
        >>> model = {"w": np.ones(2)}
        >>> TrainState(model, setup(Descent(0.5), model)).count
        0
    """

    model: Any
    state: State
    count: Any = 0


def _parts(x: TrainState) -> tuple[Any, State, Any]:
    return x.model, x.state, x.count


jax.tree_util.register_dataclass(TrainState, ["model", "state", "count"], [])
_register: Any = optree.register_pytree_node
_register(
    TrainState,
    lambda x: (_parts(x), None, ("model", "state", "count")),
    lambda _, parts: TrainState(*parts),
    namespace=GLOBAL_NAMESPACE,
)


def make_step(
    loss: Callable[..., Any], *, ad: Backend | None = None, has_aux: bool = False
) -> Callable[[TrainState, Any], tuple[TrainState, Any]]:
    """Return the step of a loop: value and gradient of a loss, and an update.

    With JAX it works under `jax.jit` and `jax.lax.scan`, with other libraries as it is. Models of
    JAX and NumPy arrays are left as they were; others are trained in place.

    Args:
        loss: returns one real number for `(model, *batch)` if a batch is a tuple or a list, and
            otherwise for `(model, batch)`.
        ad: the backend; None: the one that the model asks for.
        has_aux: whether `loss` returns `(value, aux)`.

    Returns:
        `step(train_state, batch) -> (train_state, loss)`, with aux `(train_state, (loss, aux))`;
        the loss is the one before the update.

    Raises:
        ArgumentError: `loss` is not a function. The step raises what `ad.gradient` and `update` do.

    Examples:
        >>> step = make_step(lambda model, x: ((model["w"] - x) ** 2).sum())
        >>> model = {"w": jnp.zeros(2)}
        >>> carry, loss = step(TrainState(model, setup(Descent(0.5), model)), jnp.ones(2))
        >>> float(loss), carry.model["w"], carry.count
        (2.0, Array([1., 1.], dtype=float32), 1)
    """
    check_function(loss)

    def step(train_state: TrainState, batch: Any) -> tuple[TrainState, Any]:
        if not isinstance(train_state, TrainState):
            raise ArgumentError(
                f"a step takes TrainState(model, state) first, got {type(train_state).__name__}"
            )
        model, state, count = _parts(train_state)
        backend = backend_of(ad, model)
        value, grads = backend.value_and_gradient(
            loss, model, *spread(batch), has_aux=has_aux, state=checked(state)
        )
        if backend.in_place:
            state, model = update_(state, owned(model, backend), grads)
        else:
            state, model = update(state, model, grads)
        return TrainState(model, state, count + 1), value

    return step


def check_function(loss: Any) -> None:
    """Raise where a loss is not a function."""
    if not callable(loss):
        raise ArgumentError(f"the loss must be a function (model, *batch), got {kind_of(loss)}")


def kind_of(x: Any) -> str:
    """Say what something is, for an error."""
    return f"the class {x.__name__}" if isinstance(x, type) else type(x).__name__


def spread(batch: Any) -> tuple[Any, ...]:
    """Return a batch as the arguments that a loss takes after the model."""
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)
