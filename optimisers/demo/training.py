"""The loop: gradients from a library, steps from a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import optimisers
from optimisers.errors import NonFiniteLossError

from . import network
from .digits import Digits, batches, one_hot
from .gradients import Library

BATCH = 128
CHECKS = 25


@dataclass
class Run:
    """What a training leaves behind: the loss of each step, and (step, accuracy) in percent."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[tuple[int, float]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The last accuracy on the held-out images, in percent."""
        return self.accuracies[-1][1]

    @property
    def diverged(self) -> bool:
        """Whether the last loss is not a number, or infinite."""
        return not math.isfinite(self.losses[-1])


def train(
    rule: optimisers.Rule,
    library: Library,
    data: Digits,
    steps: int,
    seed: int,
    progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Run:
    """Train a fresh network for so many steps, or until the loss is no longer finite.

    `progress` wraps the batches; if it has `set_postfix`, the loss and the accuracy go there.
    """
    model: Any = network.fresh_model(library, seed)
    targets = one_hot(data.labels)
    run = Run([], [(0, _accuracy(library, model, data))])
    order = progress(list(batches(len(targets), BATCH, steps, seed)))

    def note(count: int, value: float, state: optimisers.State, model: Any) -> None:
        run.losses.append(value)
        if count % max(1, steps // CHECKS) == 0 or count == steps:
            run.accuracies.append((count, _accuracy(library, model, data)))
            _show(order, run)

    try:
        optimisers.train(
            partial(network.loss, library), model,
            ((library.array(data.images[i]), library.array(targets[i])) for i in order),
            optimisers.setup(rule, model),
            ad=library.backend, callback=note, progress=False,
        )  # fmt: skip
    except NonFiniteLossError:
        run.losses.append(math.nan)
    return run


def _accuracy(library: Library, model: Any, data: Digits) -> float:
    return network.accuracy(library, model, data.test_images, data.test_labels)


def _show(bar: Any, run: Run) -> None:
    if hasattr(bar, "set_postfix"):
        bar.set_postfix(loss=f"{run.losses[-1]:.3f}", accuracy=f"{run.accuracy:.1f} %")
