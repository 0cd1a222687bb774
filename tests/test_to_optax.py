"""Rules as transformations of Optax: in its chains, in Flax, under jit and scan."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState

from optimisers import (
    AccumGrad,
    Adam,
    AdamW,
    Descent,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    adjust,
    freeze,
    from_optax,
    setup,
    to_optax,
    update,
)
from optimisers.errors import ArgumentError, StructureError

pytestmark = pytest.mark.peers

PARAMS = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
GRADS = {"w": jnp.linspace(-1.0, 1.0, 6).reshape(2, 3), "b": jnp.array([0.5, 0.0, -2.0])}


def after(tx: Any, params: Any, *grads: Any, jit: bool = False) -> Any:
    state, step = tx.init(params), jax.jit(tx.update) if jit else tx.update
    for g in grads:
        updates, state = step(g, state, params)
        params = optax.apply_updates(params, updates)
    return params


def close(got: Any, expected: Any, rtol: float = 1e-5) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5), got, expected)


@pytest.mark.parametrize("jit", [False, True])
def test_it_moves_parameters_as_update_does(jit: bool) -> None:
    rule = {"b": Momentum(0.1), "**": AdamW(0.1, lambda_=0.1)}
    state, model = setup(rule, PARAMS), PARAMS
    for _ in range(3):
        state, model = update(state, model, GRADS)
    close(after(to_optax(rule), PARAMS, *[GRADS] * 3, jit=jit), model)


def test_there_and_back_again() -> None:
    back = to_optax(from_optax(optax.adam(0.1)))
    close(after(back, PARAMS, GRADS, GRADS), after(optax.adam(0.1), PARAMS, GRADS, GRADS))


@pytest.mark.parametrize(
    "around",
    [
        lambda tx: optax.chain(optax.clip_by_global_norm(1.0), tx, optax.scale(0.5)),
        lambda tx: optax.MultiSteps(tx, 2),
        lambda tx: optax.apply_if_finite(tx, 3),
        lambda tx: optax.masked(tx, {"w": True, "b": False}),
        lambda tx: optax.multi_transform({"a": tx, "b": optax.sgd(0.1)}, {"w": "a", "b": "b"}),
        lambda tx: optax.with_extra_args_support(tx),
    ],
    ids=["chain", "MultiSteps", "apply_if_finite", "masked", "multi_transform", "extra"],
)
def test_it_stands_where_transformations_stand(around: Any) -> None:
    ours, theirs = around(to_optax(Adam(0.1))), around(optax.adam(0.1))
    close(after(ours, PARAMS, GRADS, GRADS, jit=True), after(theirs, PARAMS, GRADS, GRADS))


@pytest.mark.parametrize(
    "around",
    [
        lambda tx: optax.apply_if_finite(tx, 3),
        lambda tx: optax.conditionally_transform(tx, lambda step: step < 5),
        lambda tx: optax.conditionally_mask(tx, lambda step: step < 5),
    ],
)
def test_gradients_of_16_bits_are_widened_for_what_chooses_between_them_and_updates(
    around: Any,
) -> None:
    narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
    tx = around(to_optax(Adam(0.1)))
    with pytest.raises(TypeError, match="cond branches must have equal output types"):
        after(tx, narrow, jax.tree.map(lambda g: g.astype(jnp.bfloat16), GRADS))
    close(after(tx, narrow, GRADS), after(to_optax(Adam(0.1)), narrow, GRADS))


def test_it_is_carried_through_a_scan() -> None:
    tx = to_optax(Adam(0.1))

    def body(carry: Any, _: None) -> Any:
        params, state = carry
        updates, state = tx.update(GRADS, state, params)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(body, (PARAMS, tx.init(PARAMS)), None, length=3)
    close(params, after(optax.adam(0.1), PARAMS, *[GRADS] * 3))


def test_a_train_state_of_flax_trains_with_it() -> None:
    net, x = linen.Dense(2), jnp.eye(3)
    params = net.init(jax.random.key(0), x)["params"]

    def trained(tx: Any) -> Any:
        train_state = TrainState.create(apply_fn=net.apply, params=params, tx=tx)

        @jax.jit
        def step(train_state: Any) -> Any:
            def loss(params: Any) -> Any:
                return jnp.mean((train_state.apply_fn({"params": params}, x) - 1) ** 2)

            return train_state.apply_gradients(grads=jax.grad(loss)(train_state.params))

        for _ in range(3):
            train_state = step(train_state)
        return train_state.params

    close(trained(to_optax(Adam(0.1))), trained(optax.adam(0.1)))


@pytest.mark.parametrize("jit", [False, True])
def test_an_optimizer_of_nnx_trains_with_it(jit: bool) -> None:
    x = jnp.eye(3)

    def trained(tx: Any) -> Any:
        net = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        optimiser = nnx.Optimizer(net, tx, wrt=nnx.Param)

        def step(net: Any, optimiser: Any) -> None:
            grads = nnx.grad(lambda net: jnp.mean((net(x) - 1) ** 2))(net)
            optimiser.update(net, grads)

        stepped = nnx.jit(step) if jit else step
        for _ in range(3):
            stepped(net, optimiser)
        return nnx.to_pure_dict(nnx.state(net, nnx.Param))

    close(trained(to_optax(Adam(0.1))), trained(optax.adam(0.1)))


def test_injected_numbers_are_followed_from_step_to_step() -> None:
    def run(make: Any) -> Any:
        tx, params = optax.inject_hyperparams(make)(eta=0.1), PARAMS
        state = tx.init(params)
        for eta in (0.1, 0.5, 0.0):
            state.hyperparams["eta"] = jnp.asarray(eta)
            updates, state = jax.jit(tx.update)(GRADS, state, params)
            params = optax.apply_updates(params, updates)
        return params

    plain = run(lambda eta: optax.sgd(eta))
    close(run(lambda eta: to_optax(Descent(eta))), plain)
    close(run(lambda eta: to_optax({"b": Descent(eta), "**": Descent(eta)})), plain)
    close(plain["w"], PARAMS["w"] - 0.6 * GRADS["w"])
    with pytest.raises(ArgumentError, match="arrays in the rule of a function are not followed"):
        run(lambda eta: to_optax(lambda path, x: Descent(eta)))


def test_adjust_and_freeze_work_on_its_state() -> None:
    tx = to_optax(Descent(0.1))
    state = freeze(adjust(tx.init(PARAMS), 0.5), "b")
    updates, _ = jax.jit(tx.update)(GRADS, state, PARAMS)
    close(updates, {"w": -0.5 * GRADS["w"], "b": jnp.zeros(3)})


def test_what_has_no_gradient_or_is_not_trained_gets_zeros() -> None:
    params = {"w": jnp.ones(2), "b": jnp.ones(2), "n": jnp.arange(3)}
    tx = to_optax(Adam(0.1))
    updates, _ = tx.update({"w": jnp.ones(2), "b": None, "n": None}, tx.init(params), params)
    out = optax.apply_updates(params, updates)
    close(out, {"w": jnp.full(2, 0.9), "b": jnp.ones(2), "n": jnp.arange(3)})
    assert out["n"].dtype == params["n"].dtype


def test_one_array_at_two_places_is_two_parameters_unless_it_is_said() -> None:
    w = jnp.ones(2)
    params, grads = {"a": w, "b": w}, {"a": jnp.ones(2), "b": 2 * jnp.ones(2)}
    close(
        after(to_optax(Descent(0.1)), params, grads), {"a": jnp.full(2, 0.9), "b": jnp.full(2, 0.8)}
    )
    tied = to_optax(Descent(0.1), ties=[("a", "b")])
    close(after(tied, params, grads, jit=True), {"a": jnp.full(2, 0.7), "b": jnp.full(2, 0.7)})


def test_numpy_parameters_are_jaxs_from_the_first_step_on() -> None:
    params, grads = (jax.tree.map(np.asarray, tree) for tree in (PARAMS, GRADS))
    out = after(to_optax(Adam(0.1)), params, grads, grads)
    close(out, after(optax.adam(0.1), params, grads, grads))


def test_16_bit_parameters_follow_their_master_copy_exactly() -> None:
    params = {"w": jnp.ones(3, jnp.bfloat16)}
    rule = MixedPrecision(Adam(1e-3))
    grads = [{"w": jnp.full(3, g, jnp.bfloat16)} for g in (1.0, -0.5, 2.0) * 10]
    state, model = setup(rule, params), params
    for g in grads:
        state, model = update(state, model, g)
    out = after(to_optax(rule), params, *grads)
    assert out["w"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(out["w"], model["w"])
    assert float(out["w"][0]) < 1.0


def test_gathered_gradients_move_nothing_in_between() -> None:
    tx = to_optax(OptimiserChain(AccumGrad(2), Descent(0.1)))
    once = after(tx, PARAMS, GRADS)
    close(once, PARAMS)
    close(after(tx, PARAMS, GRADS, GRADS), after(optax.sgd(0.1), PARAMS, GRADS))


def test_its_state_can_be_shaped_without_being_made() -> None:
    tx = to_optax(Adam(0.1))
    shapes = jax.eval_shape(tx.init, PARAMS)
    made = tx.init(PARAMS)
    assert jax.tree.structure(shapes) == jax.tree.structure(made)
    assert [s.shape for s in jax.tree.leaves(shapes)] == [a.shape for a in jax.tree.leaves(made)]


def test_bad_input_gets_one_sentence() -> None:
    tx = to_optax(Adam(0.1))
    state = tx.init(PARAMS)
    with pytest.raises(ArgumentError, match=r"call tx.update\(grads, state, params\)"):
        tx.update(GRADS, state)
    with pytest.raises(StructureError, match="w"):
        tx.update({"b": GRADS["b"]}, state, PARAMS)
    with pytest.raises(ArgumentError, match="cannot use float as a rule"):
        to_optax(0.1).init(PARAMS)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="becomes one by from_optax"):
        to_optax(optax.adam(0.1)).init(PARAMS)


def test_without_optax_the_install_line_is_given() -> None:
    code = (
        "import sys, optimisers, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'optax' else find(name, *a)\n"
        "try: optimisers.to_optax(optimisers.Adam())\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert 'optax is not installed; python -m pip install "optimisers[interop]"' in done
