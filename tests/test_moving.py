"""Moving a state: to another device, with ties, frozen flags, counts and adjusted values."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Adam, Momentum, adjust, freeze, get_path, setup, state_dict, update
from optimisers.errors import StateError

from .trees import assert_same


def test_device_put_keeps_everything() -> None:
    w = jnp.ones(3)
    model = {"enc": w, "dec": {"w": w, "big": jnp.ones((140, 130))}, "b": jnp.ones(2)}
    state = setup(Adam(lambda n: 0.1 / (1 + n)), model)
    state, model = update(state, model, model)
    state = freeze(adjust(state, epsilon=1e-4, where="b"), "dec/big")
    moved = jax.device_put(state, jax.devices()[0])
    assert_same(state_dict(moved), state_dict(state))
    assert "tied" in repr(moved)
    assert moved["dec"]["big"].frozen
    assert get_path(moved, "enc/steps") == 1
    assert moved["b"].hyperparameters["epsilon"] == 1e-4
    assert_same(update(moved, model, model), update(state, model, model))


MOVE = """
import jax, jax.numpy as jnp, numpy as np, optimisers
from optimisers import *
one, two = jax.devices()
w = jnp.ones(3)
model = {"enc": w, "dec": w, "big": jnp.ones((140, 130)), "b": jnp.ones(2)}
state = setup(Adam(0.1), model)
state, model = update(state, model, model)
state = freeze(adjust(state, 0.5, "b"), "big")
there = jax.device_put(state, two)
assert {d for a in jax.tree.leaves(there) for d in a.devices()} == {two}
moved = {"enc": jax.device_put(model["enc"], two), "big": jax.device_put(model["big"], two),
         "b": jax.device_put(model["b"], two)}
moved["dec"] = moved["enc"]
for step in (update, update_):
    there, moved = step(there, moved, jax.tree.map(jnp.ones_like, moved))
    state, model = step(state, model, jax.tree.map(jnp.ones_like, model))
for a, b in zip(jax.tree.leaves((there, moved)), jax.tree.leaves((state, model)), strict=True):
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
assert moved["enc"] is moved["dec"] and moved["enc"].devices() == {two}
assert there["big"].frozen and there["b"].rule == Adam(0.5)
new = adjust(there, MixedPrecision(Adam(0.5)))  # written anew, and still there
assert new["enc"].state[1][0].devices() == {two}, new["enc"].state
print("moved")
"""


def test_a_run_goes_on_on_another_device() -> None:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", MOVE], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "moved\n", done.stderr


def test_a_state_that_was_narrowed_on_its_way_says_so() -> None:
    model = {"w": np.ones(3)}
    state = setup(Momentum(), model)
    moved: Any = jax.device_put(state, jax.devices()[0])
    with pytest.raises(StateError, match="was narrowed to float32 on its way here"):
        update(moved, model, model)
