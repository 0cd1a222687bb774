"""Inside JAX's transformations: jit, grad, vmap, scan; and what is concrete while they trace."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from optimisers import (
    Adam,
    ClipGlobalNorm,
    ClipNorm,
    Descent,
    Momentum,
    OptimiserChain,
    SkipNonFinite,
    adjust,
    adjust_,
    freeze,
    setup,
    update,
    update_,
)
from optimisers.errors import StateError

from .trees import assert_same

BOTH = pytest.mark.parametrize("step", [update, update_])
RULES = pytest.mark.parametrize(
    "rule",
    [
        Momentum(0.5, 0.5),
        OptimiserChain(ClipNorm(1.0, throw=False), Momentum(0.5, 0.5)),
        OptimiserChain(ClipGlobalNorm(1.0), Adam(0.5)),
        SkipNonFinite(Adam(0.5)),
    ],
    ids=repr,
)


def model() -> Any:
    w = jnp.ones(3)
    return {
        "w": w, "tied": w, "large": jnp.ones((130, 130)), "half": jnp.ones(2, jnp.bfloat16),
        "weak": jnp.asarray(2.0), "empty": jnp.ones((0, 2)), "none": None, "int": jnp.arange(2),
    }  # fmt: skip


def like(model: Any) -> Any:
    return jax.tree.map(lambda x: jnp.ones(x.shape), model)


def near(a: Any, b: Any) -> None:
    # Fused differently, multiply-adds round differently.
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(np.asarray(x, float), np.asarray(y, float), rtol=1e-5, atol=1e-6)


@BOTH
@RULES
def test_a_program_of_ones_own_takes_the_same_step(step: Any, rule: Any) -> None:
    state, g = setup(rule, model()), like(model())
    expected = update(*update(state, model(), g), dict(g, w=None, tied=None, large=None))
    inside = jax.jit(step)
    found = inside(*inside(state, model(), g), dict(g, w=None, tied=None, large=None))
    near(found, expected)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert not any(x.is_deleted() for x in jax.tree.leaves(state))


def test_setup_inside_jit_and_vmap_gives_the_same_state() -> None:
    rule = Adam(0.5)
    plain, traced = setup(rule, model(), ties=()), jax.jit(partial(setup, rule))(model())
    assert traced._box.layout is plain._box.layout
    assert_same(jax.tree.leaves(traced), jax.tree.leaves(plain))
    # One object in the program is one parameter, as it is outside.
    one = jax.jit(lambda w: setup(rule, {"a": w, "b": w}))(jnp.ones(3))
    assert one._box.layout is setup(rule, dict.fromkeys("ab", jnp.ones(3)))._box.layout


@BOTH
def test_an_ensemble_of_models_is_each_of_them(step: Any) -> None:
    seeds = jnp.arange(3.0)
    models = {
        "w": seeds[:, None] * jnp.ones((3, 4)),
        "b": [seeds],
        "large": jnp.ones((3, 130, 130)),
    }
    grads = jax.tree.map(lambda x: x + 1, models)
    states = jax.vmap(partial(setup, Adam(0.5)))(models)
    for _ in range(2):
        states, models = jax.vmap(step)(states, models, grads)
    for i in range(3):
        one = {"w": i * jnp.ones(4), "b": [jnp.float32(i)], "large": jnp.ones((130, 130))}
        g = jax.tree.map(lambda x: x + 1, one)
        state = setup(Adam(0.5), one)
        for _ in range(2):
            state, one = update(state, one, g)
        near(jax.tree.map(lambda x, i=i: x[i], (states, models)), (state, one))


def test_an_ensemble_of_learning_rates_is_each_of_them() -> None:
    x, etas = jnp.ones(3), jnp.array([0.1, 0.5])
    found = jax.vmap(lambda eta: update(setup(Descent(eta), x), x, x)[1])(etas)
    near(found, jnp.array([[0.9] * 3, [0.5] * 3]))


def test_a_vmapped_state_outside_vmap_is_refused() -> None:
    states = jax.vmap(partial(setup, Momentum()))({"w": jnp.ones((2, 3))})
    for call in (update, update_, jax.jit(update)):
        with pytest.raises(
            StateError, match=r'model\["w"\] has hyper-parameters of shape \(2, .*vmap'
        ):
            call(states, {"w": jnp.ones(3)}, {"w": jnp.ones(3)})


@BOTH
@RULES
def test_the_carry_of_a_scan_keeps_its_structure_where_gradients_are_missing(
    step: Any, rule: Any
) -> None:
    g = dict(like(model()), w=None, tied=None, half=None, large=None)
    state = setup(rule, model())

    def body(carry: Any, _: Any) -> Any:
        return step(*carry, g), None

    found, _ = jax.lax.scan(body, (state, model()), None, length=3)
    expected = (state, model())
    for _ in range(3):
        expected = update(*expected, g)
    near(found, expected)


def test_loops_and_branches_take_states() -> None:
    g, state = like(model()), setup(Adam(0.5), model())
    expected = update(state, model(), g)
    loop = jax.lax.fori_loop(0, 1, lambda _, c: update(*c, g), (state, model()))
    near(loop, expected)
    branch = jax.lax.cond(True, lambda c: update(*c, g), lambda c: c, (state, model()))
    near(branch, expected)


def test_derivatives_go_through_three_steps() -> None:
    def after(eta: Any, x: Any) -> Any:
        tree = {"x": x, "y": [x * 2]}
        state = setup(OptimiserChain(ClipNorm(2.0), Adam(0.1)), tree)
        state = adjust(state, eta)
        for _ in range(3):
            g = jax.tree.map(lambda x: 2 * x + 1, tree)
            state, tree = update(state, tree, g)
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))

    with jax.enable_x64(True):
        x = jnp.array([1.0, -2.0, 0.5])
        check_grads(
            jax.jit(after), (jnp.array(0.1), x), order=1, modes=["fwd", "rev"], atol=1e-5, rtol=1e-5
        )
    remat = jax.checkpoint(lambda x: update(setup(Descent(0.5), x), x, x)[1].sum())
    near(jax.grad(remat)(jnp.ones(2)), jnp.full(2, 0.5))


def test_weak_types_stay_weak() -> None:
    x = jnp.asarray(2.0)
    for call in (update, update_, jax.jit(update)):
        x = call(setup(Adam(0.1), {"x": x}), {"x": x}, {"x": jnp.float32(1)})[1]["x"]
        assert x.weak_type


def test_numpy_parameters_become_traced_ones() -> None:
    host = {"w": np.ones(3, np.float32), "large": np.ones((130, 130), np.float32)}
    state = setup(Momentum(0.5), host)
    found = jax.jit(lambda g: update_(state, host, g))({"w": jnp.ones(3), "large": None})
    assert np.array_equal(host["w"], [1, 1, 1])
    near(found[1], {"w": jnp.full(3, 0.5), "large": jnp.ones((130, 130))})
    near(jax.jit(update)(state, host, host), update(state, host, host))


def test_wide_parameters_and_states_are_refused_where_jax_narrows_them() -> None:
    wide = {"w": np.ones(2)}
    for make in (lambda s: s, lambda s: jax.tree.map(jnp.asarray, s)):
        state = make(setup(Momentum(), wide))
        with pytest.raises(StateError, match=r'state of model\["w"\] was narrowed to float32.*x64'):
            jax.jit(update)(state, wide, wide)
    with jax.enable_x64(True):
        state, new = jax.jit(update)(setup(Momentum(0.5), wide), wide, wide)
        assert new["w"].dtype == state["w"].state.dtype == np.float64
    state = setup(Momentum(0.5), wide)
    for on in (True, False, True):
        with jax.enable_x64(on):
            state, wide = update_(state, wide, {"w": np.zeros(2)})
    assert state["w"].state.dtype == np.float64


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lib", [np, jnp])
def test_what_is_concrete_while_others_trace_stays_concrete(lib: Any, dtype: str) -> None:
    rule = OptimiserChain(ClipNorm(10.0), ClipGlobalNorm(10.0), Momentum(0.5, 0.5))
    with jax.enable_x64(lib is jnp and dtype == "float64"):
        w = lib.ones(3, dtype)
        tree, kept = {"w": w, "tied": w, "large": lib.ones((130, 130), dtype)}, []
        g = {"w": lib.ones(3, dtype), "tied": np.zeros(3, dtype), "large": None}

        @jax.jit
        def program(y: Any) -> Any:
            state = setup(rule, tree)
            adjust_(state, 0.25)
            state, new = update_(freeze(state, "large"), dict(tree), g)
            kept.append((state, new))
            return y + new["w"].astype("float32").sum()

        assert program(jnp.float32(0)) == 3 * 0.75
        state, new = kept[0]
        assert isinstance(new["w"], type(w))
        assert np.array_equal(state["w"].state[2], [0.25] * 3)
        near(update(state, new, None)[1], new)


def test_adjust_in_a_program_takes_traced_numbers() -> None:
    state, x = setup(Momentum(0.1, 0.0), {"x": jnp.ones(2)}), {"x": jnp.ones(2)}
    step = jax.jit(lambda s, eta: update(adjust(s, eta), x, x)[1]["x"])
    near(step(state, 0.5), jnp.full(2, 0.5))
    near(jax.grad(lambda eta: step(state, eta).sum())(0.3), jnp.float32(-2))
