"""More that can be counted: host transfers, 64-bit numbers, compiles, memory beyond the model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import (
    Adam,
    AdamW,
    ClipGlobalNorm,
    OptimiserChain,
    adjust,
    freeze,
    setup,
    thaw,
    update,
    update_,
)
from optimisers.state.programs import arguments, program_for

from .compiles import compiles
from .kernels import jobs

CLIPPED = OptimiserChain(ClipGlobalNorm(1.0), AdamW(0.1))


def model() -> dict[str, Any]:
    small = {f"p{i}": jnp.ones((3 + i % 2, 5)) for i in range(12)}
    return {**small, "large": jnp.ones((130, 130)), "twin": jnp.ones((130, 130))}


def halves(tree: Any) -> Any:
    return jax.tree.map(lambda x: 0.5 * x, tree)


def test_steps_move_nothing_between_host_and_device() -> None:
    tree, inside = model(), jax.jit(update)
    state, g = setup(CLIPPED, tree), halves(tree)
    for step in (update_, inside):
        state, tree = step(state, tree, g)
        state, tree = step(state, tree, g)
    with jax.transfer_guard("disallow"):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"[Dd]isallowed host-to-device"):
            inside(state, tree, dict(g, large=np.ones((130, 130), "f")))
        for step in (inside, update_, update):
            state, tree = step(state, tree, g)


def test_programs_of_32_bit_parameters_have_no_64_bit_numbers() -> None:
    with jax.enable_x64(True):
        tree = jax.tree.map(lambda x: x.astype("float32"), model())
        state = setup(CLIPPED, tree)
        text = jax.jit(update).lower(state, tree, halves(tree)).compile().as_text()
        assert "f32[" in text
        assert "f64[" not in text


def test_what_alternates_compiles_nothing_after_both_were_there() -> None:
    tree = model()
    state, g = setup(Adam(0.01), tree), halves(tree)
    gaps = [g, dict(g, p0=None, p7=None, twin=None)]

    def turn(state: Any, tree: Any, i: int) -> Any:
        state = adjust(state, 0.01 * (i + 1))
        state = thaw(state, "p1*") if i % 2 else freeze(state, "p1*")
        return update_(state, tree, gaps[i // 2 % 2])

    for i in range(4):
        state, tree = turn(state, tree, i)
    with compiles() as count:
        for i in range(4, 20):
            state, tree = turn(state, tree, i)
        assert count() == 0


def test_memory_beyond_model_state_and_gradients_is_a_tenth_at_most() -> None:
    tree = {**model(), "wide": jnp.ones((600, 600))}
    state, g = setup(Adam(), tree), halves(tree)
    alive = sum(x.nbytes for x in jax.tree.leaves((state, tree, g)))
    beyond = 0
    for job in jobs(state, tree, g):
        program = program_for("step", job.spec, job.in_rows, True, True)
        used = program.lower(*arguments(job)).compile().memory_analysis()
        assert used.alias_size_in_bytes > 0.9 * sum(x.nbytes for x in job.xs)
        new = used.output_size_in_bytes - used.alias_size_in_bytes
        beyond = max(beyond, new + used.temp_size_in_bytes)
    assert beyond <= 0.1 * alive
