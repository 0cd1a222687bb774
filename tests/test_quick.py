"""The quick way of a step refuses what the general way refuses, in its words, and changes nothing.

With one unit of parameters it leaves the looking to its only program; with several it looks first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from optimisers import Adam, setup, update, update_

MODULE = importlib.import_module("optimisers.api.update")
SMALL, LARGE = {"w": (2, 3), "b": (3,)}, {"w": (2, 3), "b": (3,), "big": (90, 90)}


def filled(shapes: dict[str, tuple[int, ...]], value: float) -> dict[str, Any]:
    return {name: jnp.full(shape, value) for name, shape in shapes.items()}


def deleted(x: jax.Array) -> jax.Array:
    gone = x + 1
    gone.delete()
    return gone


GRADS: dict[str, Callable[[jax.Array], Any]] = {
    "transposed": jnp.transpose,
    "of one row more": lambda x: jnp.concatenate([x, x[:1]]),
    "broadcast": lambda x: x[:1],
    "flat": jnp.ravel,
    "complex": lambda x: x.astype(jnp.complex64),
    "booleans": lambda x: x > 0,
    "keys": lambda x: jax.random.key(0),
    "deleted": deleted,
    "strings": lambda x: np.full(x.shape, "a"),
    "objects": lambda x: np.full(x.shape, None),
    "a list": lambda x: [x],
    "text": lambda x: "a",
}
FINE: dict[str, Callable[[jax.Array], Any]] = {
    "NumPy's": np.asarray,
    "of 64 bits": lambda x: np.asarray(x, np.float64),
    "of 16 bits": lambda x: x.astype(jnp.bfloat16),
    "integers": lambda x: x.astype(jnp.int32),
    "masked": lambda x: np.ma.masked_array(np.asarray(x)),
    "weakly typed": lambda x: jnp.asarray(2.0) * jnp.ones(x.shape, x.dtype),
}


def general(*args: Any) -> None:
    """Stand for the quick way where it is not open."""


def after_two_steps(shapes: dict[str, tuple[int, ...]], way: Any) -> tuple[Any, Any, Any]:
    model, grads = filled(shapes, 1.0), filled(shapes, 2.0)
    state = setup(Adam(0.1), model)
    for _ in range(2):
        state, model = way(state, model, grads)
    return state, model, grads


@pytest.mark.parametrize("way", [update, update_])
@pytest.mark.parametrize("shapes", [SMALL, LARGE], ids=["one unit", "two units"])
@pytest.mark.parametrize("bad", GRADS)
def test_a_bad_gradient_is_refused_alike(
    bad: str, shapes: dict[str, tuple[int, ...]], way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, model, grads = after_two_steps(shapes, way)
    kept = jax.tree.map(np.array, (state["w"].state, model))
    wrong = {**grads, "w": GRADS[bad](grads["w"])}
    with pytest.raises(Exception, match="w") as quick:
        way(state, model, wrong)
    monkeypatch.setattr(MODULE, "quick_step", general)
    with pytest.raises(type(quick.value)) as slow:
        way(state, model, wrong)
    assert str(quick.value) == str(slow.value)
    jax.tree.map(np.testing.assert_array_equal, (state["w"].state, model), kept)
    monkeypatch.undo()
    way(state, model, grads)


@pytest.mark.parametrize("way", [update, update_])
@pytest.mark.parametrize("shapes", [SMALL, LARGE], ids=["one unit", "two units"])
@pytest.mark.parametrize("kind", FINE)
def test_a_gradient_of_another_kind_gives_the_same_numbers(
    kind: str, shapes: dict[str, tuple[int, ...]], way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for quick in (True, False):
        state, model, grads = after_two_steps(shapes, way)
        if not quick:
            monkeypatch.setattr(MODULE, "quick_step", general)
        state, model = way(state, model, {**grads, "w": FINE[kind](grads["w"])})
        found.append((state["w"].state, model))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        assert type(a) is type(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("way", [update, update_])
def test_a_sharding_is_kept_also_over_one_device(way: Any) -> None:
    mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
    model = jax.device_put(filled(LARGE, 1.0), NamedSharding(mesh, PartitionSpec("data")))
    state = setup(Adam(), model)
    for _ in range(3):
        state, model = way(state, model, jax.tree.map(lambda x: 0.5 * x, model))
        assert {x.sharding.spec for x in model.values()} == {PartitionSpec("data")}


@pytest.mark.parametrize("shapes", [SMALL, LARGE], ids=["one unit", "two units"])
def test_a_parameter_that_was_replaced_is_looked_at(shapes: dict[str, tuple[int, ...]]) -> None:
    """Another array of ours, an array that is a gradient as well, NumPy's, one that is gone."""
    state, model, grads = after_two_steps(shapes, update_)
    model["b"] = model["b"] + 1
    shared = {"w": model["w"], "b": model["w"][0]}
    new: Any
    _, new = update(state, model, {**grads, **shared})
    state, model = update_(state, model, {**grads, **shared})
    assert not shared["w"].is_deleted()
    for name in new:
        np.testing.assert_array_equal(model[name], new[name])
    model["w"] = np.asarray(model["w"])
    state, model = update_(state, model, grads)
    old = dict(model)
    state, model = update_(state, model, grads)
    with pytest.raises(ValueError, match=r'model\["\w+"\] was deleted'):
        update_(state, old, grads)
    update_(state, model, grads)


def test_a_gradient_that_is_a_parameter_makes_no_noise(capfd: pytest.CaptureFixture[str]) -> None:
    """XLA would refuse to take an array twice, and print that, before the general way is taken."""
    state, model, grads = after_two_steps(SMALL, update_)
    capfd.readouterr()
    update_(state, model, {**grads, "w": model["w"]})
    assert capfd.readouterr() == ("", "")
