"""A data-parallel training on handwritten digits, over as many processes as it is told.

    python -m tests.processes FILE [ADDRESS NUMBER ID]

Each process reads its share of every batch; gradients are averaged by JAX, steps are taken eagerly.
Process 0 writes the parameters to FILE.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from sklearn.datasets import load_digits

from optimisers import AdamW, ClipGlobalNorm, OptimiserChain, setup, update_

STEPS, BATCH = 20, 64


def loss(model: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ model["in"]["w"] + model["in"]["b"])
    logits = jax.nn.log_softmax(hidden @ model["out"]["w"] + model["out"]["b"])
    return -jnp.mean(jnp.take_along_axis(logits, y[:, None], axis=1))


def trained() -> dict[str, Any]:
    """Return the parameters after some steps over all devices of all processes."""
    rng = np.random.default_rng(0)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    sizes = {"in": (64, 32), "out": (32, 10)}
    model: Any = {
        name: {"w": rng.normal(size=size) * 0.1, "b": np.zeros(size[1])}
        for name, size in sizes.items()
    }
    model = jax.tree.map(lambda x: jax.device_put(x.astype("f"), whole), model)
    x, y = load_digits(return_X_y=True)
    state = setup(OptimiserChain(ClipGlobalNorm(1.0), AdamW(0.01)), model)
    gradient = jax.jit(jax.grad(loss), out_shardings=whole)
    share, me = BATCH // jax.process_count(), jax.process_index()
    for step in range(STEPS):
        mine = slice(step * BATCH + me * share, step * BATCH + (me + 1) * share)
        batch = (
            jax.make_array_from_process_local_data(cut, a[mine])
            for a in (x.astype("f") / 16, y.astype("i"))
        )
        state, model = jax.block_until_ready(update_(state, model, gradient(model, *batch)))
    return {f"{a}/{b}": np.asarray(x) for a, part in model.items() for b, x in part.items()}


def main(file: str, address: str = "", number: str = "1", me: str = "0") -> None:
    """Join the other processes, train, and write what came out."""
    if address:
        jax.distributed.initialize(address, int(number), int(me))
    found = trained()
    assert jax.process_count() == int(number)
    if me == "0":
        np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
