"""Equinox's own ways of sharing and of keeping statistics."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Adam, Descent, setup, update, update_

pytestmark = pytest.mark.peers


def test_nn_shared_has_none_at_the_second_place_and_its_total_at_the_first() -> None:
    embedding = eqx.nn.Embedding(3, 2, key=jax.random.key(0))
    linear = eqx.nn.Linear(2, 3, use_bias=False, key=jax.random.key(1))
    shared = eqx.nn.Shared((embedding, linear), lambda pair: pair[1].weight, lambda pair: pair[0].weight)  # fmt: skip  # noqa: E501

    def loss(model: Any) -> Any:
        first, second = model()
        return (second(first(jnp.array(1))) ** 2).sum()

    def by_hand(w: Any) -> Any:
        return ((w @ w[1]) ** 2).sum()

    grads = eqx.filter_grad(loss)(shared)
    w = embedding.weight
    _, new = update(setup(Descent(0.1), shared), shared, grads)
    first, second = new()
    assert np.allclose(first.weight, w - 0.1 * jax.grad(by_hand)(w), rtol=1e-5)
    assert first.weight is second.weight


@pytest.mark.parametrize("step", [update, update_])
def test_batch_norm_keeps_its_statistics_in_a_state_of_its_own(step: Any) -> None:
    norm, held = eqx.nn.make_with_state(eqx.nn.BatchNorm)(2, "batch", mode="batch")
    state = setup(Adam(0.1), norm)

    def loss(norm: Any, held: Any, x: Any) -> Any:
        out, held = jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
            x, held
        )
        return ((out - 3.0) ** 2).mean(), held

    x = jnp.array([[1.0, 2.0], [3.0, 8.0]])
    for _ in range(3):
        (_, held), grads = eqx.filter_value_and_grad(loss, has_aux=True)(norm, held, x)
        state, norm = step(state, norm, grads)
    assert np.allclose(norm.bias, [0.3, 0.3], atol=1e-3)
    assert type(norm) is eqx.nn.BatchNorm


def test_numpy_numbers_that_equinox_differentiates_are_left_alone() -> None:
    class Scaled(eqx.Module):
        w: Any
        rate: Any

    model = Scaled(jnp.ones(2), 0.5)
    grads = eqx.filter_grad(lambda m: (m.w * m.rate).sum())(model)
    _, new = update_(setup(Descent(1.0), model), model, grads)
    assert (new.w.tolist(), new.rate) == ([0.5, 0.5], 0.5)
