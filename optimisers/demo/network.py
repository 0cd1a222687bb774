"""The network: two layers of tanh, a nest of dicts and a list, the same for every library."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .digits import CLASSES, PIXELS

if TYPE_CHECKING:
    from .gradients import Library

WIDTHS = (PIXELS, 64, 32)


def fresh_model(library: Library, seed: int) -> dict[str, Any]:
    """Return a network with random weights, its arrays made by `library`.

    NumPy draws the weights, so that each library starts from the same numbers.
    """
    generator = np.random.default_rng(seed)

    def layer(inputs: int, outputs: int) -> dict[str, Any]:
        weights = generator.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32)
        return {"w": library.array(weights), "b": library.array(np.zeros(outputs, np.float32))}

    hidden = [layer(i, o) for i, o in pairwise(WIDTHS)]
    return {"hidden": hidden, "out": layer(WIDTHS[-1], CLASSES)}


def scores(library: Library, model: Any, images: Any) -> Any:
    """Return a score for each image and digit, [n, 10]."""
    x = images
    for layer in model["hidden"]:
        x = library.tanh(x @ layer["w"] + layer["b"][None, :])
    return x @ model["out"]["w"] + model["out"]["b"][None, :]


def loss(library: Library, model: Any, images: Any, targets: Any) -> Any:
    """Return the mean cross-entropy, in nats, of one-hot targets [n, 10]."""
    return -(library.log_softmax(scores(library, model, images)) * targets).sum() / len(targets)


def accuracy(library: Library, model: Any, images: Any, labels: Any) -> float:
    """Return the share of images whose highest score is at their label, in percent."""
    best = np.asarray(scores(library, model, library.array(images))).argmax(axis=1)
    return 100.0 * float(np.mean(best == labels))
