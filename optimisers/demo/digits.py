"""The data: 1,797 images of handwritten digits, a quarter of them held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..arrays.needs import need

PIXELS, CLASSES, WHITE = 64, 10, 16.0


class Digits(NamedTuple):
    """Images as float32 [n, 64] in [0, 1], and the digit each shows, as int [n]."""

    images: Any
    labels: Any
    test_images: Any
    test_labels: Any


def load(seed: int) -> Digits:
    """Return the digits of scikit-learn, each class split three to one."""
    datasets = need("sklearn.datasets", "load the digits")
    selection = need("sklearn.model_selection", "split the digits")
    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / WHITE).astype(np.float32)
    train, test, train_labels, test_labels = selection.train_test_split(
        images, labels, test_size=0.25, stratify=labels, random_state=seed
    )
    return Digits(train, train_labels, test, test_labels)


def batches(count: int, size: int, steps: int, seed: int) -> Iterator[Any]:
    """Yield the indices of each step's images: all of them in a new order, then again."""
    generator = np.random.default_rng(seed)
    order = np.empty(0, np.int64)
    for _ in range(steps):
        while len(order) < size:
            order = np.concatenate([order, generator.permutation(count)])
        yield order[:size]
        order = order[size:]


def one_hot(labels: Any) -> Any:
    """Return float32 [n, 10] with a one at each label."""
    return np.eye(CLASSES, dtype=np.float32)[labels]
