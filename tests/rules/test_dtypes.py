"""Every rule in every dtype, for the leaves of every array library that it serves."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optimisers
from optimisers.arrays.numbers import compute_dtype, is_wide, precision
from optimisers.errors import DtypeError
from optimisers.rules.rule import start

from ..cases import (
    ALL,
    DTYPES,
    REAL_DTYPES,
    WITH_EPSILON,
    Case,
    all_where,
    gradients,
    make,
    reference,
)
from ..loops import one_step, trajectory
from ..oracles import follow

# Half a unit in the last place, for each step that was rounded to the parameter's dtype.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2e-6, "float64": 1e-13}


def per_dtype(names: list[str]) -> Any:
    return pytest.mark.parametrize("dtype", names)


def run(case: Case, model: Any, grads: Any) -> tuple[Any, Any]:
    """Return state and model after some steps."""
    state = optimisers.setup(case.rule, model)
    for g in grads:
        state, model = optimisers.update(state, model, g)
    return state, model


def floats(state: Any) -> list[Any]:
    """Return the floating and complex arrays in the state of one parameter."""
    leaves = map(jnp.asarray, jax.tree.leaves(state))
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]


@ALL
@per_dtype(REAL_DTYPES)
def test_numpy_leaves_follow_the_oracle(case: Case, dtype: str) -> None:
    x = np.linspace(-2.0, 2.0, 7).astype(DTYPES[dtype])
    grads = [g.astype(DTYPES[dtype]) for g in gradients(6)]
    _, after = run(case, {"w": x}, [{"w": g} for g in grads])
    assert after["w"].dtype == x.dtype
    wanted = follow(case.rule, x.astype(np.float64), [g.astype(np.float64) for g in grads])[-1]
    off = np.abs(after["w"].astype(np.float64) - wanted)
    assert off.max() <= 6 * ROUNDING[dtype] * (1 + np.abs(wanted).max())


@ALL
@per_dtype(REAL_DTYPES)
def test_state_is_as_wide_as_the_arithmetic(case: Case, dtype: str) -> None:
    x = np.ones(7).astype(DTYPES[dtype])
    state, _ = run(case, {"w": x}, [{"w": x}])
    with precision(is_wide(x.dtype)):
        assert {leaf.dtype for leaf in floats(state["w"].state)} <= {compute_dtype(x.dtype)}


@all_where(decays=False)
@per_dtype(REAL_DTYPES)
def test_a_zero_gradient_does_nothing_to_a_fresh_state(case: Case, dtype: str) -> None:
    x = np.linspace(-2.0, 2.0, 7).astype(DTYPES[dtype])
    _, after = run(case, {"w": x}, [{"w": np.zeros_like(x)}] * 3)
    np.testing.assert_array_equal(after["w"], x)


@WITH_EPSILON
def test_without_an_epsilon_nothing_is_divided_by_nothing(case: Case) -> None:
    x = jnp.linspace(-2.0, 2.0, 7)
    bare = case.rule.adjust(epsilon=0.0)

    @jax.jit
    def moved(x: Any, g: Any) -> Any:
        state, first = one_step(bare, start(bare, x), x, g)
        return one_step(bare, state, first, g)[1]

    derivative = jax.jit(jax.grad(lambda x, g: jnp.sum(moved(x, g)), argnums=(0, 1)))
    for found in (moved(x, jnp.zeros(7)), *derivative(x, jnp.zeros(7))):
        assert bool(jnp.isfinite(found).all())


@all_where(decays=True)
@per_dtype(REAL_DTYPES)
def test_a_zero_gradient_of_a_decaying_rule_is_finite(case: Case, dtype: str) -> None:
    x = np.linspace(-2.0, 2.0, 7).astype(DTYPES[dtype])
    _, after = run(case, {"w": x}, [{"w": np.zeros_like(x)}] * 3)
    assert np.isfinite(np.asarray(after["w"], np.float64)).all()


@ALL
@per_dtype(["bfloat16", "float32"])
def test_jax_leaves_go_where_numpy_leaves_go(case: Case, dtype: str) -> None:
    x = np.linspace(-2.0, 2.0, 7).astype(DTYPES[dtype])
    grads = [g.astype(DTYPES[dtype]) for g in gradients(4)]
    _, host = run(case, {"w": x}, [{"w": g} for g in grads])
    _, device = run(case, {"w": jnp.asarray(x)}, [{"w": jnp.asarray(g)} for g in grads])
    assert isinstance(device["w"], jax.Array)
    assert device["w"].dtype == x.dtype
    # Two programs, as NumPy leaves are laid out in rows outside it: they fuse in other places.
    device64, host64 = (np.asarray(a, np.float64) for a in (device["w"], host["w"]))
    np.testing.assert_allclose(device64, host64, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


@ALL
@per_dtype(REAL_DTYPES)
def test_torch_leaves_go_where_numpy_leaves_go(case: Case, dtype: str, torch: ModuleType) -> None:
    kind = getattr(torch, dtype)
    xs = torch.linspace(-2.0, 2.0, 7, dtype=torch.float64).to(kind)
    grads = [torch.tensor(g).to(kind) for g in gradients(4)]
    _, found = run(case, {"w": xs}, [{"w": g} for g in grads])
    assert found["w"].dtype == kind
    x, gs = as_numpy(xs, dtype), [{"w": as_numpy(g, dtype)} for g in grads]
    _, host = run(case, {"w": x}, gs)
    np.testing.assert_array_equal(as_numpy(found["w"], dtype), host["w"])


def as_numpy(tensor: Any, dtype: str) -> Any:
    # NumPy has no bfloat16 that torch knows; through float32 nothing is lost.
    return tensor.float().numpy().astype(DTYPES[dtype]) if "16" in dtype else tensor.numpy()


@pytest.mark.parametrize("call", reference()["parameters_after_each_step"])
def test_the_published_trajectories_are_those_of_update(call: str, torch: ModuleType) -> None:
    data, wanted = reference(), reference()["parameters_after_each_step"][call]
    x, rule = np.array(data["x0"]), make(call)
    # Three libraries side by side; JAX's own array has float64 only in x64 mode.
    with jax.enable_x64(True):
        model = {"jax": jnp.asarray(x)}
        after = steps(rule, model, [{"jax": jnp.asarray(g)} for g in np.array(data["gradients"])])
        np.testing.assert_allclose(after["jax"], wanted, rtol=0, atol=1e-12)
    both = {"numpy": x, "torch": torch.tensor(x)}
    grads = [{"numpy": g, "torch": torch.tensor(g)} for g in np.array(data["gradients"])]
    after = steps(rule, both, grads)
    np.testing.assert_allclose(after["numpy"], wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(after["torch"], wanted, rtol=0, atol=1e-12)


def steps(rule: Any, model: Any, grads: Any) -> dict[str, list[Any]]:
    """Return for each leaf its values after each step, by `update_`."""
    state, found = optimisers.setup(rule, model), {name: [] for name in model}
    model = {name: x.clone() if hasattr(x, "clone") else x.copy() for name, x in model.items()}
    for g in grads:
        state, model = optimisers.update_(state, model, g)
        for name, x in model.items():
            found[name].append(x.numpy().copy() if hasattr(x, "numpy") else np.array(x))
    return found


@all_where(real=False)
@per_dtype(["complex64", "complex128"])
def test_complex_leaves_follow_the_oracle_with_real_second_moments(case: Case, dtype: str) -> None:
    rng = np.random.default_rng(5)
    x = (rng.normal(size=5) + 1j * rng.normal(size=5)).astype(DTYPES[dtype])
    grads = (gradients(6, (5,)) + 1j * gradients(6, (5,), 9)).astype(dtype)
    _, after = run(case, {"w": x}, [{"w": g} for g in grads])
    assert after["w"].dtype == x.dtype
    close = 1e-5 if dtype == "complex64" else 1e-12
    np.testing.assert_allclose(after["w"], follow(case.rule, x, grads)[-1], rtol=close, atol=close)
    adam = optimisers.setup(optimisers.Adam(), {"w": x})["w"].state
    assert (adam[0].dtype, adam[1].dtype) == (x.dtype, x.real.dtype)


@all_where(real=True)
def test_setup_refuses_complex_leaves_where_they_have_no_meaning(case: Case) -> None:
    model = {"enc": [np.ones(2), np.ones(2, complex)]}
    name = "Rprop|Lion|SignDecay|ClipGrad"
    with pytest.raises(DtypeError, match=rf'model\["enc"\]\[1\] with ({name}).*complex128\[2\]'):
        optimisers.setup(case.rule, model)


def test_adam_on_float16_steps_by_its_learning_rate() -> None:
    x = np.array([0.579, -0.729, 0.5493], np.float16)
    g = np.array([-0.001497, 0.0001875, -0.013176], np.float16)
    rule = optimisers.Adam(1e-4)
    step = rule.apply(rule.init(x), x, g)[1]
    assert step.dtype == np.float32
    assert (np.abs(step) <= 1.01e-4).all()
    np.testing.assert_array_equal(trajectory(rule, x, [g])[0], x)


def test_a_small_step_needs_mixed_precision_to_move_a_bfloat16_parameter() -> None:
    x, rule = jnp.ones(1, jnp.bfloat16), optimisers.Adam(1e-3)
    step = rule.apply(rule.init(x), x, jnp.full(1, 0.5, jnp.bfloat16))[1]
    np.testing.assert_allclose(step, 1e-3, rtol=1e-5)
    assert trajectory(rule, x, [jnp.full(1, 0.5, jnp.bfloat16)])[0] == 1


def test_adam_of_a_complex_parameter_steps_along_the_gradient() -> None:
    x = np.zeros(1, complex)
    state, after = run(Case("Adam(0.01)"), {"w": x}, [{"w": np.array([3 + 4j])}])
    np.testing.assert_allclose(after["w"], [-(0.006 + 0.008j)], rtol=1e-6)
    np.testing.assert_allclose(state["w"].state[1], [0.025], rtol=1e-6)


def test_float64_beside_float32_with_x64_off() -> None:
    x, grads = np.linspace(-2.0, 2.0, 7), gradients(20)
    model = {"double": x, "single": x.astype(np.float32)}
    gs = [{"double": g, "single": g.astype(np.float32)} for g in grads]
    _, after = run(Case("Adam(0.1)"), model, gs)
    np.testing.assert_allclose(after["double"], follow(make("Adam(0.1)"), x, grads)[-1], atol=1e-12)
    assert after["single"].dtype == np.float32
