"""The models that are measured: lists of shapes, filled with the same numbers for everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Shape = tuple[int, ...]
Arrays = dict[str, dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]]


def small(count: int) -> list[Shape]:
    """Return the shapes of weights and biases in turn, `count` in all."""
    return [((32,) if k % 2 else (32, 32)) for k in range(count)]


def all_different(count: int) -> list[Shape]:
    """Return shapes of which no two are equal: no compiled kernel serves two parameters."""
    return [(20 + k % 25, 16 + k // 25) for k in range(count)]


def resnet50() -> list[Shape]:
    """Return the 161 parameters of ResNet-50: convolutions, each with a scale and a shift."""
    found: list[Shape] = [(64, 3, 7, 7), (64,), (64,)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((width, inside, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                found += [shape, (shape[0],), (shape[0],)]
            if block == 0:
                found += [(4 * width, inside, 1, 1), (4 * width,), (4 * width,)]
            inside = 4 * width
    return [*found, (1000, 2048), (1000,)]


def gpt2_small() -> list[Shape]:
    """Return the 148 parameters of GPT-2 small."""
    d = 768
    block: list[Shape] = [(d,), (d,), (d, 3 * d), (3 * d,), (d, d), (d,)]
    block += [(d,), (d,), (d, 4 * d), (4 * d,), (4 * d, d), (d,)]
    return [(50257, d), (1024, d), *block * 12, (d,), (d,)]


def mlp() -> list[Shape]:
    """Return the 6 parameters of a perceptron with two hidden layers for images of 28x28."""
    return [(784, 256), (256,), (256, 128), (128,), (128, 10), (10,)]


MODELS: Mapping[str, Sequence[Shape]] = {
    "1 small": small(1),
    "6 small": small(6),
    "50 small": small(50),
    "150 small": small(150),
    "1000 small": small(1000),
    "3000 small": small(3000),
    "MLP": mlp(),
    "150 different": all_different(150),
    "150 of 128x128": [(128, 128)] * 150,
    "150 of 256x256": [(256, 256)] * 150,
    "ResNet-50": resnet50(),
    "GPT-2 small": gpt2_small(),
    "1 of 32 million": [(32_000_000,)],
}


def draw(shapes: Sequence[Shape], seed: int) -> Arrays:
    """Fill nested dicts with normal numbers, two parameters a layer."""
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for k, shape in enumerate(shapes):
        layer = arrays.setdefault(f"layer{k // 2:04}", {})
        layer["bias" if k % 2 else "weight"] = rng.standard_normal(shape, dtype=np.float32)
    return arrays
