"""The network: two layers of tanh, a nest of dicts and a list, the same for every library."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ad.backend import viewed
from .digits import CLASSES, PIXELS

if TYPE_CHECKING:
    from .gradients import Library

WIDTHS = (PIXELS, 64, 32)


def fresh_model(library: Library, seed: int) -> dict[str, Any]:
    """Return a network with random weights, its layers made by `library`.

    NumPy draws the weights, so that each library starts from the same numbers.
    """
    generator = np.random.default_rng(seed)

    def layer(inputs: int, outputs: int) -> Any:
        weights = generator.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32)
        return library.layer(weights, np.zeros(outputs, np.float32))

    hidden = [layer(i, o) for i, o in pairwise(WIDTHS)]
    return {"hidden": hidden, "out": layer(WIDTHS[-1], CLASSES)}


def scores(library: Library, model: Any, images: Any) -> Any:
    """Return a score for each image and digit, [n, 10]."""
    x = images
    for layer in model["hidden"]:
        x = library.tanh(library.affine(layer, x))
    return library.affine(model["out"], x)


def loss(library: Library, model: Any, images: Any, targets: Any) -> Any:
    """Return the mean cross-entropy, in nats, of one-hot targets [n, 10]."""
    shares = library.log_softmax(scores(library, model, images))
    return -library.sum(shares * targets) / len(targets)


def accuracy(library: Library, model: Any, images: Any, labels: Any) -> float:
    """Return the share of images whose highest score is at their label, in percent."""
    best = viewed(scores(library, model, library.array(images))).argmax(axis=1)
    return 100.0 * float(np.mean(best == labels))
