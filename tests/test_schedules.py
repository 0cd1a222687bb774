"""Schedules: hyper-parameters as functions of the number of applied steps."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from optimisers import (
    AccumGrad,
    Adam,
    AdamW,
    ClipGrad,
    Descent,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    SkipNonFinite,
    WeightDecay,
    adjust,
    adjust_,
    freeze,
    get_path,
    setup,
    thaw,
    update,
)
from optimisers.errors import RuleError, RuleTypeError, StateError

from .compiles import compiles


def ten_to_the_minus(count: Any) -> Any:
    """Return 1, 0.1, 0.01, ... for counts 0, 1, 2: a step says at once which count it saw."""
    return 0.1**count


def steps_taken(rule: Any, grads: list[Any], x: float = 0.0, eta: Any = None) -> list[float]:
    """Return by how much a parameter is moved by each gradient."""
    model = {"w": np.array([x])}
    state, moved = setup(rule, model), []
    for g in grads:
        state, new = update(state, model, {"w": None if g is None else np.array([g])})
        moved.append(float(model["w"][0] - new["w"][0]))
        model = new
    return moved


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("kind", ["numpy", "jax", "half"])
def test_the_first_step_sees_0_and_each_applied_step_the_next(big: bool, kind: str) -> None:
    w = np.zeros((140, 130) if big else (3,), np.float64 if kind == "numpy" else np.float32)
    if kind != "numpy":
        w = jnp.asarray(w, jnp.bfloat16 if kind == "half" else jnp.float32)
    model = {"w": w}
    state, seen = setup(Descent(ten_to_the_minus), model), []
    for _ in range(3):
        state, new = update(state, model, {"w": np.ones(w.shape)})
        seen.append(float(-np.asarray(new["w"]).ravel()[-1]))
    np.testing.assert_allclose(seen, [1, 0.1, 0.01], rtol=4e-3 if kind == "half" else 1e-6)
    assert get_path(state, "w/steps") == 3


def test_only_applied_steps_count() -> None:
    np.testing.assert_allclose(
        steps_taken(Descent(ten_to_the_minus), [1, None, 1, None, 1]), [1, 0, 0.1, 0, 0.01]
    )
    skipping = SkipNonFinite(Descent(ten_to_the_minus))
    np.testing.assert_allclose(
        steps_taken(skipping, [1, np.nan, 1, np.inf, 1]), [1, 0, 0.1, 0, 0.01]
    )
    gathering = OptimiserChain(AccumGrad(2), Descent(ten_to_the_minus))
    np.testing.assert_allclose(steps_taken(gathering, [1] * 6), [0, 1, 0, 0.1, 0, 0.01])
    before = OptimiserChain(WeightDecay(lambda n: n), AccumGrad(2), Descent(1.0))
    np.testing.assert_allclose(steps_taken(before, [1] * 4, x=1.0), [0, 1, 0, 1])
    model = {"w": np.zeros(1)}
    state = freeze(setup(Descent(ten_to_the_minus), model))
    state, _ = update(state, model, {"w": np.ones(1)})
    _, new = update(thaw(state), model, {"w": np.ones(1)})
    np.testing.assert_allclose(new["w"], [-1])


def test_every_float_and_every_wrapper_takes_a_schedule() -> None:
    rule = SkipNonFinite(
        MixedPrecision(
            OptimiserChain(
                ClipGrad(lambda n: 0.5 + n), WeightDecay(lambda n: 0.0 * n), Descent(1.0)
            )
        )
    )
    model = {"w": jnp.zeros(1)}
    state = setup(rule, model)
    for bound in (0.5, 1.5, 2.5):
        assert state["w"].hyperparameters["delta"] == bound
        state, new = update(state, model, {"w": jnp.full(1, 9.0)})
        np.testing.assert_allclose(new["w"], [-bound], rtol=1e-6)
    with pytest.raises(RuleTypeError, match="beta is a tuple of numbers and cannot be a schedule"):
        Adam(beta=lambda n: (0.9, 0.99))


def test_optaxs_schedules_fit() -> None:
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 3, 10, 0.01)
    model = {"w": jnp.zeros(2), "v": np.zeros(3)}
    state = setup(Descent(schedule), model)
    ours = optax.sgd(schedule)
    theirs, x = ours.init(model["w"]), model["w"]
    for i in range(12):
        expected = float(schedule(i))
        assert state["w"].hyperparameters["eta"] == pytest.approx(expected, abs=1e-8)
        state, model = update(state, model, {"w": jnp.ones(2), "v": np.ones(3)})
        with jax.numpy_dtype_promotion("standard"):
            step, theirs = ours.update(jnp.ones(2), theirs)
        x = x + step
        np.testing.assert_allclose(model["w"], x, rtol=1e-6)
        np.testing.assert_allclose(model["v"], x[0], rtol=1e-6)


def test_a_schedule_compiles_once_and_runs_under_jit_and_scan() -> None:
    model = {"w": jnp.zeros(2), "big": jnp.zeros((130, 130))}
    grads = jax.tree.map(jnp.ones_like, model)
    state = setup(Momentum(ten_to_the_minus), model)
    state, new = update(state, model, grads)
    with compiles() as count:
        for _ in range(5):
            state, new = update(state, new, grads)
    assert count() == 0

    def body(carry: Any, _: Any) -> Any:
        return update(*carry, grads), None

    (scanned, end), _ = jax.lax.scan(
        body, (setup(Momentum(ten_to_the_minus), model), model), None, length=6
    )
    np.testing.assert_allclose(end["w"], new["w"], rtol=1e-6)
    assert get_path(scanned, "big/steps") == 6


def test_adjust_sets_and_replaces_a_schedule() -> None:
    model = {"w": np.zeros(1), "v": np.zeros(1)}
    grads = {"w": np.ones(1), "v": np.ones(1)}
    state = setup(Descent(0.5), model)
    state, model = update(state, model, grads)
    state = adjust(state, ten_to_the_minus, "w")
    # A function of the number of applied steps: one was.
    assert state["w"].hyperparameters == {"eta": pytest.approx(0.1)}
    assert state["v"].hyperparameters == {"eta": 0.5}
    state, model = update(state, model, grads)
    np.testing.assert_allclose([model["w"][0], model["v"][0]], [-0.6, -1.0])
    adjust_(state, eta=lambda n: 100.0 * n, where="w")
    assert state["w"].hyperparameters == {"eta": 200.0}
    with pytest.raises(
        RuleError, match="cannot set eta of Descent to a number: it follows a sched"
    ):
        adjust(state, 0.1)
    with pytest.raises(RuleError, match="follows a schedule"):
        adjust_(state, eta=0.1, where="w")
    assert adjust(state, 0.1, "v")["v"].rule == Descent(0.1)
    assert adjust(state, Descent(0.1))["w"].hyperparameters == {"eta": 0.1}


def test_the_other_numbers_of_a_scheduled_rule_are_adjusted_as_ever() -> None:
    state = setup(AdamW(ten_to_the_minus), {"w": np.zeros(1)})
    assert adjust(state, lambda_=0.5)["w"].hyperparameters == {
        "eta": 1.0, "beta": (0.9, 0.999), "lambda_": 0.5, "epsilon": 1e-8,
    }  # fmt: skip


def test_hyperparameters_of_a_chain_are_told_apart() -> None:
    rule = OptimiserChain(WeightDecay(0.1), AdamW(lambda_=0.2))
    assert setup(rule, {"w": np.zeros(1)})["w"].hyperparameters == {
        "rules[0].lambda_": 0.1, "eta": 0.001, "beta": (0.9, 0.999), "rules[1].lambda_": 0.2,
        "epsilon": 1e-8,
    }  # fmt: skip
    assert setup(AccumGrad(3), {"w": np.zeros(1)})["w"].hyperparameters == {"n": 3}


def test_what_is_no_schedule_raises_before_anything_runs() -> None:
    model = {"w": np.zeros(1)}
    for function, message in [
        (lambda n: 0.1 if n < 3 else 0.2, "cannot be traced by JAX .*jnp.where in place of if"),
        (lambda n: jnp.ones(2), "must give one number"),
        (lambda n: "0.1", "eta"),
        (lambda: 0.1, "cannot be traced"),
    ]:
        with pytest.raises(RuleTypeError, match=message):
            setup(OptimiserChain(Descent(function)), model)
        with pytest.raises(RuleTypeError, match=message):
            adjust(setup(Descent(), model), function)
    with pytest.raises(RuleError, match="which only a state counts; use setup and update"):
        OptimiserChain(Descent(ten_to_the_minus)).apply(((),), jnp.zeros(1), jnp.ones(1))


def test_pickle_and_deepcopy_keep_the_count() -> None:
    model = {"w": np.zeros(1)}
    state, model = update(setup(Descent(ten_to_the_minus), model), model, {"w": np.ones(1)})
    for again in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state), copy.copy(state)):
        assert again["w"].hyperparameters == {"eta": pytest.approx(0.1)}


def test_a_schedule_that_does_not_pickle_says_that_state_dict_does() -> None:
    state = setup(OptimiserChain(Descent(lambda n: 0.1)), {"w": np.zeros(1)})
    with pytest.raises(StateError, match=r"schedule of eta.*does not pickle.*state_dict\(state\)"):
        pickle.dumps(state)
    copy.deepcopy(state)
