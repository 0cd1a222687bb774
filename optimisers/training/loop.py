"""train: the plain loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from ..ad.backend import Backend, nothing, viewed
from ..ad.find import backend_of
from ..api.update import update_
from ..arrays.ops import is_traced_type
from ..errors import ArgumentError, NonFiniteError, NonFiniteLossError
from ..state import State
from ..state.state import checked
from .owning import owned
from .step import check_function, kind_of, spread
from .watching import Bar, Interrupts

Callback = Callable[[int, float, State, Any], Any]


def train(
    loss: Callable[..., Any],
    model: Any,
    data: Iterable[Any],
    state: State,
    *,
    ad: Backend | None = None,
    callback: Callback | None = None,
    progress: bool = True,
) -> tuple[State, Any]:
    """Train a model: for each batch one gradient of the loss and one `update_`.

    The caller's NumPy and JAX arrays are copied once, at the start, and left alone, and so is the
    state. Models of libraries that write in place (torch, NNX, MLX, tinygrad, TensorFlow) are
    trained in place. With JAX a step is compiled once for each shape of batch, anew in each call:
    give it all epochs at once, `(batch for _ in range(10) for batch in loader)`.

    Args:
        loss: returns one real number for `(model, *batch)` if a batch is a tuple or a list, and
            otherwise for `(model, batch)`.
        model: as it was set up.
        data: the batches; any iterable, which says when to stop.
        state: from `setup`.
        ad: the backend; None: the one that the model asks for.
        callback: called after each step as `callback(count, loss, state, model)`: how many steps
            were taken, and the loss of the last batch before its update. It may change the state by
            the functions whose names end in `_`. What it keeps of a JAX model it must copy, as the
            next step gives the memory away.
        progress: whether to show a progress bar, if tqdm is installed and somebody looks.

    Returns:
        `(state, model)`; what was reached, if the loop was interrupted by Ctrl-C.

    Raises:
        NonFiniteLossError: the loss of a batch is infinite or NaN. The error has the state and the
            model as they were before that batch, as `.state` and `.model`; so has NonFiniteError,
            where a rule insists on finite gradients.
        ArgumentError: arguments of the wrong kind or swapped.
        OptimiserError: what `ad.gradient` and `update_` raise.

    Examples:
        >>> model = {"w": np.zeros(2)}
        >>> batches = [np.array([2.0, 4.0])] * 3
        >>> state = setup(Descent(0.25), model)
        >>> state, model = train(lambda m, x: ((m["w"] - x) ** 2).sum(), model, batches, state)
        >>> model["w"]
        array([1.75, 3.5 ])
    """
    _check_arguments(loss, model, data, state, callback)
    backend = backend_of(ad, model)
    with Interrupts() as interrupts, suppress(KeyboardInterrupt), Bar(data, progress) as bar:
        with interrupts.held():
            state, model = copy.deepcopy(state), owned(model, backend)
        gradient, keep = backend.compiled(loss), backend.watch(model)
        for count, batch in enumerate(bar, start=1):
            undo = keep()
            try:
                value, grads = gradient(state, model, *spread(batch))
                number = _finite(value, count - 1)
                with interrupts.held():
                    state, model = update_(state, model, grads)
                    undo = nothing
            except NonFiniteError as error:
                error.state, error.model = state, model
                raise
            finally:
                with interrupts.held():
                    undo()
            bar.show(number)
            if callback is not None:
                callback(count, number, state, model)
    return state, model


def _finite(value: Any, batch: int) -> float:
    if is_traced_type(type(value)):
        raise ArgumentError(
            "train is a loop of Python, and cannot be traced by JAX; use make_step under jax.jit "
            "or jax.lax.scan"
        )
    number = float(np.asarray(viewed(value)))
    if not math.isfinite(number):
        raise NonFiniteLossError(
            f"the loss of batch {batch} is {number}; .state and .model of this error are as they "
            "were before that batch"
        )
    return number


def _check_arguments(loss: Any, model: Any, data: Any, state: Any, callback: Any) -> None:
    """Raise where an argument of `train` is not what it should be."""
    check_function(loss)
    if isinstance(model, State) or isinstance(data, State):
        raise ArgumentError("arguments swapped: call train(loss, model, data, state)")
    checked(state)
    is_number = getattr(data, "ndim", 1) == 0
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | dict) or is_number:
        raise ArgumentError(f"data must be an iterable of batches, got {kind_of(data)}")
    if callback is not None and not callable(callback):
        raise ArgumentError(f"the callback must be a function, got {kind_of(callback)}")
