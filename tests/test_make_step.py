"""TrainState and make_step: one step, for loops of one's own."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optree
import pytest

from optimisers import Descent, Momentum, TrainState, ad, make_step, setup
from optimisers.errors import ArgumentError, DtypeError, StateError

from .line import X, Y, by_hand, counted, fresh, loss


def test_a_train_state_is_a_pytree_for_jax_and_optree() -> None:
    model = fresh()
    carry = TrainState(model, setup(Momentum(0.1), model), 7)
    for tree in (jax.tree, optree):
        flat = (jax.tree.leaves if tree is jax.tree else optree.tree_leaves)(carry)
        assert any(x is model["w"] for x in flat)
        assert 7 in [x for x in flat if isinstance(x, int)]
    doubled = optree.tree_map(lambda x: x, carry)
    assert isinstance(doubled, TrainState)
    moved = jax.device_put(carry)
    assert isinstance(moved, TrainState)
    assert int(moved.count) == 7
    assert pickle.loads(pickle.dumps(carry)).count == 7


def test_a_step_tells_the_loss_before_the_update() -> None:
    model, (losses, w) = fresh(), by_hand(3)
    step = make_step(loss)
    carry = first = TrainState(model, setup(Descent(0.1), model))
    values = []
    for _ in range(3):
        carry, value = step(carry, (X, Y))
        values.append(float(value))
    np.testing.assert_allclose(values, losses, rtol=1e-5)
    np.testing.assert_allclose(carry.model["w"], w, rtol=1e-5)
    assert (first.count, carry.count) == (0, 3)
    np.testing.assert_array_equal(first.model["w"], fresh()["w"])
    assert step(first, (X, Y))[1] == losses[0]  # the first is as good as new


def test_a_step_works_under_jit_and_scan_compiled_once() -> None:
    model, (losses, w) = fresh(), by_hand(4)
    counting, traces = counted()
    carry = TrainState(model, setup(Descent(0.1), model))
    step = make_step(counting)
    last, values = jax.lax.scan(step, carry, (jnp.stack([X] * 4), jnp.stack([Y] * 4)))
    np.testing.assert_allclose(values, losses, rtol=1e-5)
    np.testing.assert_allclose(last.model["w"], w, rtol=1e-5)
    assert int(last.count) == 4
    traces.clear()
    jitted = jax.jit(step)
    for _ in range(4):
        carry, value = jitted(carry, (X, Y))
    np.testing.assert_allclose(value, losses[3], rtol=1e-5)
    assert (len(traces), int(carry.count)) == (1, 4)


@pytest.mark.parametrize("jit", [jax.jit, lambda step: step])
def test_ties_of_the_state_hold_in_a_step(jit: Any) -> None:
    w = jnp.ones(2)
    model = {"a": w, "b": w}
    step = jit(make_step(lambda m, x: ((2 * m["a"] + 5 * m["b"]) * x).sum()))
    carry, _ = step(TrainState(model, setup(Descent(1.0), model)), jnp.ones(2))
    assert float(carry.model["a"][0]) == float(carry.model["b"][0]) == -6.0


def test_64_bit_numpy_models_step_in_64_bits_and_not_under_a_32_bit_jit() -> None:
    model = {"w": np.array([0.5, -0.5]), "b": np.array(0.0)}
    step, (losses, w) = make_step(loss), by_hand(2)
    first = carry = TrainState(model, setup(Descent(0.1), model))
    for _ in range(2):
        carry, value = step(carry, (X.astype(float), Y.astype(float)))
    np.testing.assert_allclose(value, losses[1], rtol=1e-12)
    np.testing.assert_allclose(carry.model["w"], w, rtol=1e-12)
    with pytest.raises((StateError, DtypeError), match="jax_enable_x64"):
        jax.jit(step)(first, (X, Y))


def test_a_step_hands_on_aux() -> None:
    def with_aux(model: Any, x: Any) -> Any:
        return loss(model, x, Y), {"bias": model["b"]}

    carry = TrainState(fresh(), setup(Descent(0.1), fresh()))
    step = make_step(with_aux, has_aux=True)
    for taken in (step, jax.jit(step)):
        after, (value, aux) = taken(carry, X)
        assert isinstance(after, TrainState)
        np.testing.assert_allclose(value, by_hand(1)[0][0], rtol=1e-5)
        assert float(aux["bias"]) == 0.0


def test_a_step_of_torch_is_in_place(torch: Any) -> None:
    model = fresh(torch.tensor)
    carry = TrainState(model, setup(Descent(0.1), model))
    step = make_step(loss)
    for _ in range(5):
        carry, value = step(carry, (torch.tensor(X), torch.tensor(Y)))
    assert carry.model is model
    np.testing.assert_allclose(model["w"], by_hand(5)[1], rtol=1e-5)
    np.testing.assert_allclose(value, by_hand(5)[0][4], rtol=1e-5)


def test_bad_arguments_of_a_step_get_one_sentence() -> None:
    with pytest.raises(ArgumentError, match="the loss must be a function"):
        make_step(None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"takes TrainState\(model, state\) first, got dict"):
        make_step(loss)(fresh(), (X, Y))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected a State"):
        make_step(loss)(TrainState(fresh(), fresh()), (X, Y))
    carry = TrainState(fresh(), setup(Descent(), fresh()))
    with pytest.raises(ArgumentError, match="ad must be a backend"):
        make_step(loss, ad=3)(carry, (X, Y))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_returned_beside_is_an_array_of_numpy_or_jax_and_its_own(dtype: Any) -> None:
    model = {"w": np.ones(2, dtype)}
    (_, aux), _ = ad.value_and_gradient(
        lambda m: ((m["w"] ** 2).sum(), m["w"]), model, has_aux=True
    )
    assert type(aux) is np.ndarray if dtype is np.float64 else isinstance(aux, jax.Array)
    model["w"][:] = 3
    np.testing.assert_array_equal(aux, [1.0, 1.0])
