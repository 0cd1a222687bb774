"""The shortest way of a step gives what the others give, and is closed wherever it must be."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Adam, Descent, adjust_, freeze_, setup, thaw_, update, update_

MODULE = importlib.import_module("optimisers.api.update")


def dicts(value: float) -> Any:
    return {"enc": [{"w": jnp.full((2, 3), value), "b": jnp.full(3, value)}], "dec": jnp.ones(2)}


def lists(value: float) -> Any:
    return ([jnp.full((2, 3), value), jnp.full(3, value)], {"a": jnp.full((), value)})


def tuples(value: float) -> Any:
    return [(jnp.full((2, 3), value), jnp.full(3, value))]


MODELS: dict[str, tuple[Callable[[float], Any], bool]] = {
    "dicts and a list": (dicts, True),
    "a tuple of lists": (lists, True),
    "leaves in tuples": (tuples, False),  # which cannot be written
}


class Watch:
    """Stand in for the shortest way, and note whether it was open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[bool] = []
        self.real = MODULE.repeated_step
        monkeypatch.setattr(MODULE, "repeated_step", self)

    def __call__(self, *args: Any) -> bool:
        self.found.append(self.real(*args))
        return self.found[-1]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.mark.parametrize("name", MODELS)
def test_it_gives_the_same_numbers_into_the_same_containers(name: str, watch: Watch) -> None:
    make, is_open = MODELS[name]
    model, mine = make(1.0), make(1.0)
    state, my_state = (setup(Adam(0.1), m) for m in (model, mine))
    kept = mine
    for t in range(5):
        grads = jax.tree.map(lambda x, t=t: 0.1 * t + x, model)
        state, model = update(state, model, grads)
        my_state, mine = update_(my_state, mine, grads)
    assert watch.found[-3:] == [is_open] * 3
    jax.tree.map(np.testing.assert_array_equal, mine, model)
    for a, b in zip(jax.tree.leaves(my_state), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)
    if is_open:
        assert mine is kept


def stepped(n: int = 3) -> tuple[Any, Any, Any]:
    model, grads = dicts(1.0), dicts(0.5)
    state = setup(Descent(0.1), model)
    for _ in range(n):
        state, model = update_(state, model, grads)
    return state, model, grads


def test_what_is_changed_between_steps_is_seen(watch: Watch) -> None:
    """Hyper-parameters, freezing, a rule, a parameter of the user's, an array held elsewhere."""
    state, model, grads = stepped()
    assert watch.found[-1]
    adjust_(state, 0.0)
    before = np.array(model["dec"])
    update_(state, model, grads)
    assert watch.found[-1]
    np.testing.assert_array_equal(model["dec"], before)

    freeze_(state, "enc")
    before = np.array(model["enc"][0]["w"])
    adjust_(state, 0.1)
    update_(state, model, grads)
    assert len(watch.found) == 2  # it was not even tried
    np.testing.assert_array_equal(model["enc"][0]["w"], before)
    thaw_(state)

    for _ in range(3):
        update_(state, model, grads)
    assert watch.found[-1]
    model["dec"] = jnp.zeros(2)
    update_(state, model, grads)
    assert not watch.found[-1]
    for _ in range(3):
        update_(state, model, grads)
    assert watch.found[-1]
    held = jax.tree.leaves(state)
    update_(state, model, grads)
    assert not watch.found[-1]
    assert not any(x.is_deleted() for x in held)


@pytest.mark.parametrize(
    "change",
    [
        lambda g, m: {**g, "dec": None},
        lambda g, m: {**g, "dec": np.asarray(g["dec"])},
        lambda g, m: {**g, "dec": m["dec"]},
        lambda g, m: {**g, "enc": tuple(g["enc"])},
        lambda g, m: {"enc": [dict(reversed(g["enc"][0].items()))], "dec": g["dec"]},
        lambda g, m: {**g, "dec": g["dec"].astype(jnp.bfloat16)},
    ],
    ids=["None", "NumPy's", "a parameter", "a tuple", "another order", "of 16 bits"],
)
def test_an_unusual_gradient_gives_what_update_gives(
    change: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    state, model, grads = stepped()
    unusual = change(grads, model)
    want_state, want = update(state, model, unusual)
    state, model = update_(state, model, unusual)
    jax.tree.map(np.testing.assert_array_equal, model, want)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(want_state), strict=True):
        np.testing.assert_array_equal(a, b)
    assert capfd.readouterr() == ("", "")


def test_within_somebody_s_jit_what_is_concrete_is_stepped_at_once(watch: Watch) -> None:
    state, model, grads = stepped()
    _, want = update(state, model, grads)

    @jax.jit
    def inside(x: Any) -> Any:
        update_(state, model, grads)
        return x + model["dec"]

    np.testing.assert_array_equal(inside(jnp.zeros(2)), want["dec"])
    assert not watch.found[-1]
    np.testing.assert_array_equal(model["dec"], want["dec"])
    update_(state, model, grads)
    assert not isinstance(model["dec"], jax.core.Tracer)
