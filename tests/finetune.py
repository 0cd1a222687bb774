"""Fine-tuning on the digits: a body that knows 0 to 4 learns all ten with a new head.

`python finetune.py begin FOLDER` trains, saves in the middle, and goes on to the end;
`python finetune.py resume FOLDER` begins at what was saved. Both write their last model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optimisers
from optimisers import Adam, AdamW, ClipGrad, OptimiserChain
from optimisers.demo import digits

HEAD, BOTH = 60, 60  # steps with the head alone, and with all of it; the second half is resumed


def layer(rng: np.random.Generator, inputs: int, outputs: int) -> dict[str, Any]:
    """Return a layer with random weights."""
    w = rng.normal(0, inputs**-0.5, (inputs, outputs))
    return {"w": jnp.asarray(w, jnp.float32), "bias": jnp.zeros(outputs)}


def scores(model: Any, images: Any) -> Any:
    """Return a score for each image and class."""
    for part in model["body"]:
        images = jnp.tanh(images @ part["w"] + part["bias"][None, :])
    return images @ model["head"]["w"] + model["head"]["bias"][None, :]


def loss(trained: Any, rest: Any, images: Any, labels: Any) -> Any:
    """Return the mean cross-entropy; only `trained` is differentiated."""
    logs = jax.nn.log_softmax(scores(optimisers.combine(trained, rest), images))
    return -jnp.take_along_axis(logs, labels[:, None], 1).mean()


@jax.jit
def step(state: Any, model: Any, images: Any, labels: Any) -> tuple[Any, Any]:
    """Take one step of what is not frozen."""
    trained, rest = optimisers.partition(state, model)
    grads = jax.grad(loss)(trained, rest, images, labels)
    return optimisers.update(state, model, grads)


def rules() -> dict[str, Any]:
    """Return the rules: the head's with a warm-up and a cosine, no decay of biases."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.02, 10, HEAD + BOTH, 1e-4)
    return {
        "head": OptimiserChain(ClipGrad(1.0), Adam(schedule)),
        "**/bias": Adam(1e-3),
        "**": AdamW(1e-3, lambda_=0.01),
    }


def batches(data: digits.Digits, steps: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield images and labels."""
    for chosen in digits.batches(len(data.labels), 128, steps, seed):
        yield jnp.asarray(data.images[chosen]), jnp.asarray(data.labels[chosen])


def accuracy(model: Any, data: digits.Digits) -> float:
    """Return the share of held-out images that are read correctly."""
    best = np.asarray(scores(model, data.test_images)).argmax(axis=1)
    return float(np.mean(best == data.test_labels))


def pretrained(data: digits.Digits) -> tuple[Any, Any]:
    """Return state and model after training on the digits 0 to 4 alone."""
    rng = np.random.default_rng(0)
    model: Any = {"body": [layer(rng, 64, 48), layer(rng, 48, 32)], "head": layer(rng, 32, 5)}
    few = data._replace(images=data.images[data.labels < 5], labels=data.labels[data.labels < 5])
    state = optimisers.setup(rules(), model)
    for images, labels in batches(few, 80, 1):
        state, model = step(state, model, images, labels)
    return state, model


def begin(folder: Path) -> Any:
    """Train all stages; save in the middle of the last one."""
    data = digits.load(0)
    state, model = pretrained(data)
    model = {**model, "head": layer(np.random.default_rng(2), 32, 10)}
    state = optimisers.setup(rules(), model, keep=state)  # the body's moments are kept
    body = model["body"]
    optimisers.freeze_(state, "body")
    for images, labels in batches(data, HEAD, 3):
        state, model = step(state, model, images, labels)
    assert all(map(np.array_equal, jax.tree.leaves(model["body"]), jax.tree.leaves(body)))
    print("head alone", accuracy(model, data))
    optimisers.thaw_(state)
    for images, labels in batches(data, BOTH // 2, 4):
        state, model = step(state, model, images, labels)
    optimisers.save(folder / "state.safetensors", state)
    np.save(folder / "model.npy", optimisers.destructure(model)[0])
    return finish(state, model, data)


def resume(folder: Path) -> Any:
    """Begin where the other process saved."""
    model: Any = {
        "body": [layer(np.random.default_rng(9), 64, 48), layer(np.random.default_rng(9), 48, 32)],
        "head": layer(np.random.default_rng(9), 32, 10),
    }
    model = optimisers.destructure(model)[1](jnp.asarray(np.load(folder / "model.npy")))
    state = optimisers.load(folder / "state.safetensors", optimisers.setup(rules(), model))
    return finish(state, model, digits.load(0))


def finish(state: Any, model: Any, data: digits.Digits) -> Any:
    """Take the steps that remain."""
    for images, labels in batches(data, BOTH // 2, 5):
        state, model = step(state, model, images, labels)
    print("all of it", accuracy(model, data), state["head"]["w"].hyperparameters["eta"])
    return model


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    result = {"begin": begin, "resume": resume}[what](where)
    np.save(where / f"{what}.npy", optimisers.destructure(result)[0])
