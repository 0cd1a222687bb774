"""Every rule against the published numbers, and against NumPy loops written from the paper."""

from __future__ import annotations

import numpy as np
import pytest

import optimisers.rules as R
from optimisers.rules.rule import Rule

from ..cases import ALL, CASES, WITH_EPSILON, Case, gradients, make, reference
from ..loops import trajectory
from ..oracles import ORACLES, follow


@pytest.mark.parametrize("call", reference()["parameters_after_each_step"])
def test_a_rule_follows_the_published_trajectory(call: str) -> None:
    data = reference()
    found = trajectory(make(call), np.array(data["x0"]), np.array(data["gradients"]))
    wanted = data["parameters_after_each_step"][call]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@ALL
def test_a_rule_follows_its_paper_in_float64(case: Case) -> None:
    x, grads = np.linspace(-2.0, 2.0, 7), gradients(40)
    grads[11] = 0.0
    grads[12, ::2] = 0.0
    found = trajectory(case.rule, x, grads)
    np.testing.assert_allclose(found, follow(case.rule, x, grads), rtol=1e-12, atol=1e-12)


@WITH_EPSILON
def test_a_rule_follows_its_paper_with_an_epsilon_that_cannot_be_overlooked(case: Case) -> None:
    # At 1e-16 it has no say in a step, whatever its sign.
    rule, x, grads = case.rule.adjust(epsilon=0.3), np.linspace(-2.0, 2.0, 7), gradients(12)
    found = trajectory(rule, x, grads)
    np.testing.assert_allclose(found, follow(rule, x, grads), rtol=1e-12, atol=1e-12)


def test_the_mean_in_the_state_of_centred_rmsprop_has_its_sign() -> None:
    # Its square alone is in the step.
    rule, g = R.RMSProp(rho=0.5, centred=True), np.array([2.0, -4.0])
    state = rule.apply(rule.init(g), g, g)[0]
    np.testing.assert_array_equal(rule.apply(state, g, g)[0][1], [1.5, -3.0])


@ALL
def test_a_rule_follows_its_paper_in_float32_over_200_steps(case: Case) -> None:
    # What float32 cannot hold of the start and the gradients is taken away before either sees them.
    x = np.linspace(-1.0, 1.0, 7, dtype=np.float32)
    grads = (gradients(200) / 20).astype(np.float32)
    wanted = np.array(follow(case.rule, x.astype(float), grads.astype(float)))
    assert np.abs(wanted).max() <= 3
    np.testing.assert_allclose(trajectory(case.rule, x, grads), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("call", [c.call for c in CASES if not c.real])
def test_a_rule_follows_its_paper_in_complex128(call: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=5) + 1j * rng.normal(size=5)
    grads = gradients(20, (5,), 1) + 1j * gradients(20, (5,), 2)
    found = trajectory(make(call), x, grads)
    np.testing.assert_allclose(found, follow(make(call), x, grads), rtol=1e-12, atol=1e-12)


def test_every_exported_rule_has_a_case_and_an_oracle() -> None:
    rules = {
        name
        for name in R.__all__
        if isinstance(cls := getattr(R, name), type) and issubclass(cls, Rule)
    } - {"Rule"}
    assert rules == set(ORACLES)
    assert rules == {type(case.rule).__name__ for case in CASES}
