"""What holds for every rule, whatever the numbers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import optimisers
from optimisers.errors import RuleError, RuleTypeError
from optimisers.rules import (
    AccumGrad,
    Adam,
    AdamW,
    ClipGrad,
    ClipNorm,
    Descent,
    Momentum,
    OptimiserChain,
    RMSProp,
    Rprop,
    WeightDecay,
)
from optimisers.rules.rule import start
from optimisers.testing import check_rule

from ..cases import ALL, Case, all_where, gradients, make
from ..loops import one_step, trajectory

numbers = st.floats(-8, 8, allow_nan=False, width=32)
vectors = hnp.arrays(np.float32, 5, elements=numbers)
runs = hnp.arrays(np.float32, (4, 5), elements=numbers)


@ALL
def test_a_rule_keeps_the_laws_that_rule_writers_are_held_to(case: Case) -> None:
    check_rule(case.rule, decays=case.decays)


@ALL
@given(x=vectors, grads=runs)
def test_a_step_is_finite_and_of_the_parameters_kind(case: Case, x: Any, grads: Any) -> None:
    for after in trajectory(case.rule, x, grads):
        assert np.isfinite(after).all()
        assert (after.shape, after.dtype) == (x.shape, x.dtype)


@ALL
@given(x=vectors, grads=runs)
def test_turning_parameters_and_gradients_round_turns_the_steps(
    case: Case, x: Any, grads: Any
) -> None:
    there, back = trajectory(case.rule, x, grads), trajectory(case.rule, -x, -grads)
    np.testing.assert_array_equal(there, np.negative(back))


@all_where(around=False)
@given(x=vectors, grads=runs)
def test_a_chain_of_one_is_the_rule(case: Case, x: Any, grads: Any) -> None:
    chain = OptimiserChain(case.rule)
    np.testing.assert_array_equal(trajectory(chain, x, grads), trajectory(case.rule, x, grads))


@given(x=vectors, grads=runs)
def test_chains_associate_and_nest(x: Any, grads: Any) -> None:
    a, b, c = ClipNorm(3.0, throw=False), WeightDecay(0.1), Adam(0.01)
    flat = trajectory(OptimiserChain(a, b, c), x, grads)
    for nested in (
        OptimiserChain(OptimiserChain(a, b), c),
        OptimiserChain(a, OptimiserChain(b, c)),
        OptimiserChain(OptimiserChain(), a, OptimiserChain(b, c), OptimiserChain()),
    ):
        np.testing.assert_array_equal(trajectory(nested, x, grads), flat)


@given(x=vectors, grads=runs)
def test_an_empty_chain_is_descent_at_1(x: Any, grads: Any) -> None:
    empty, plain = trajectory(OptimiserChain(), x, grads), trajectory(Descent(1.0), x, grads)
    np.testing.assert_array_equal(empty, plain)


@given(x=vectors, grads=runs)
def test_adamw_without_decay_is_adam_bit_for_bit(x: Any, grads: Any) -> None:
    adam = trajectory(Adam(0.1), x, grads)
    np.testing.assert_array_equal(trajectory(AdamW(0.1, lambda_=0.0), x, grads), adam)
    # Not coupled, eta u is rounded before the decay is added; Adam's is fused with x - eta u.
    adamw = trajectory(AdamW(0.1, lambda_=0.0, couple=False), x, grads)
    np.testing.assert_allclose(adamw, adam, rtol=3e-7, atol=3e-7)


@all_where(whole=False)
@given(x=vectors, grads=runs)
def test_elements_go_their_own_ways(case: Case, x: Any, grads: Any) -> None:
    whole = np.array(trajectory(case.rule, x, grads))
    part = np.array(trajectory(case.rule, x[1:3], grads[:, 1:3]))
    # A fused multiply-add in one of the two programs is one rounding less.
    np.testing.assert_allclose(part, whole[:, 1:3], rtol=3e-6, atol=1e-6)


@ALL
def test_the_states_structure_and_dtypes_stay_in_a_scan(case: Case) -> None:
    x, grads = jnp.linspace(-1.0, 1.0, 5), jnp.asarray(gradients(6, (5,)), jnp.float32)
    state = jax.tree.map(jnp.asarray, start(case.rule, x))
    state = jax.tree.map(lambda a: a.astype(a.dtype), state)  # no weak types in a carry

    def body(carry: Any, g: Any) -> Any:
        new, x = one_step(case.rule, *carry, g)
        same = jax.tree.map(lambda a, b: jnp.asarray(a).astype(b.dtype), new, carry[0])
        return (same, x), x

    _, found = jax.lax.scan(body, (state, x), grads)
    want = trajectory(case.rule, np.asarray(x), np.asarray(grads))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@ALL
def test_a_rule_is_a_value(case: Case) -> None:
    rule = case.rule
    assert make(repr(rule).replace("inf", "float('inf')")) == rule
    assert pickle.loads(pickle.dumps(rule)) == rule
    assert copy.deepcopy(rule) == rule
    assert hash(make(case.call)) == hash(rule)
    assert rule != make("Descent(0.123)")


def test_fields_are_compared_as_numbers() -> None:
    assert Adam(0) == Adam(0.0)
    assert AdamW(0.1, (0.9, 0.999), 0.3, 1e-8) == AdamW(eta=0.1, lambda_=0.3)
    assert RMSProp(centered=True) == RMSProp(centred=True) != RMSProp()
    assert ClipNorm(1, 2) == ClipNorm(1.0, 2.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("Descent(-1)", "Descent: eta must be finite and at least 0, got -1.0"),
        ("Adam(-0.1)", "Adam: eta must be finite and at least 0, got -0.1"),
        ("Adam(float('nan'))", "Adam: eta must be finite and at least 0, got nan"),
        ("Adam(float('inf'))", "Adam: eta must be finite and at least 0, got inf"),
        ("Adam(0.1, (0.9, 1.0))", "Adam: beta must be at least 0 and below 1, got 1.0"),
        ("Adam(0.1, (0.9,))", "Adam: beta takes 2 numbers, got 1"),
        ("Lion(beta=(-0.1, 0.9))", "Lion: beta must be at least 0 and below 1, got -0.1"),
        ("AdaDelta(1.5)", "AdaDelta: rho must be at least 0 and at most 1, got 1.5"),
        ("AMSGrad(epsilon=-1e-8)", "AMSGrad: epsilon must be finite and at least 0"),
        ("WeightDecay(-1)", "WeightDecay: lambda_ must be finite and at least 0, got -1.0"),
        ("SignDecay(float('nan'))", "SignDecay: lambda_ must be finite and at least 0, got nan"),
        ("ClipGrad(-1)", "ClipGrad: delta must be at least 0, got -1.0"),
        ("ClipNorm(-1)", "ClipNorm: omega must be"),
        ("ClipNorm(1, float('nan'))", "ClipNorm: p must be a number that is not NaN, got nan"),
        ("ClipGlobalNorm(float('nan'))", "ClipGlobalNorm: omega must be"),
        ("Rprop(ell=(1.5, 1.2))", r"Rprop: ell\[0\] must be at least 0 and at most 1, got 1.5"),
        ("Rprop(ell=(0.5, 0.9))", r"Rprop: ell\[1\] must be finite and at least 1, got 0.9"),
        ("Rprop(gamma=(-1, 2))", r"Rprop: gamma\[0\] must be finite and at least 0, got -1.0"),
        ("Rprop(ell=(0.5, float('inf')))", r"ell\[1\] must be finite and at least 1, got inf"),
        ("Rprop(gamma=(float('inf'),) * 2)", r"gamma\[0\] must be finite and at least 0, got inf"),
        ("Descent(-(10**400))", "Descent: eta must be finite and at least 0, got -inf"),
        ("Rprop(gamma=(3, 2))", r"Rprop: gamma must not fall, got \(3.0, 2.0\)"),
        ("AccumGrad(0)", "AccumGrad: n must be at least 1, got 0.0"),
        ("AccumGrad(1.5)", "AccumGrad: n must be a whole number, got 1.5"),
    ],
)
def test_an_impossible_number_raises_with_its_field_value_and_range(
    call: str, message: str
) -> None:
    with pytest.raises(RuleError, match=message):
        make(call)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("Adam('fast')", "Adam: eta must be a number, got 'fast'"),
        ("Adam(True)", "Adam: eta must be a number, got True"),
        ("Adam(0.1, 0.9)", "Adam: beta takes 2 numbers, got 0.9"),
        ("ClipNorm(1, '2')", "ClipNorm: p must be a number, got '2'"),
        ("Adam(jnp.ones(2))", r"Adam: eta must be one real number, got float32\[2\]"),
        ("Adam(np.ones((1, 1)))", r"Adam: eta must be one real number, got float64\[1, 1\]"),
        ("Lion(beta=(0.9, jnp.ones(3)))", r"Lion: beta must be one real number, got float32"),
        ("AdamW(couple='no')", "AdamW: couple must be True or False, got couple='no'"),
        ("ClipNorm(1, throw=0)", "ClipNorm: throw must be True or False, got throw=0"),
        ("ClipGlobalNorm(throw=None)", "ClipGlobalNorm: throw must be True or False"),
        ("RMSProp(centred=1)", "RMSProp: centred must be True or False, got centred=1"),
        ("RMSProp(centred=True, centered=False)", "centred=True and centered=False"),
        ("Rprop(lambda count: 0.1)", "Rprop: eta is the first step size and cannot be a schedule"),
        ("OptimiserChain(0.1)", "OptimiserChain takes rules, got 0.1"),
        ("OptimiserChain([Adam()])", r"write OptimiserChain\(\*rules\)"),
        ("MixedPrecision(0.1)", "MixedPrecision takes rules, got 0.1"),
        ("MixedPrecision(Adam(), 'wide')", "MixedPrecision: dtype is no dtype, got 'wide'"),
        ("MixedPrecision(Adam(), 'float16')", "dtype must be float32 or float64, got float16"),
        (
            "OptimiserChain(MixedPrecision(Adam()))",
            "MixedPrecision cannot stand inside",
        ),
        ("OptimiserChain(SkipNonFinite(Adam()))", "SkipNonFinite cannot stand inside"),
        ("MixedPrecision(SkipNonFinite(Adam()))", r"write SkipNonFinite\(MixedPrecision\(...\)\)"),
        ("SkipNonFinite(SkipNonFinite(Adam()))", "one is enough"),
        ("MixedPrecision(MixedPrecision(Adam()))", "one is enough"),
    ],
)
def test_what_is_no_number_or_no_rule_raises(call: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(call)


def test_adjusting_a_rule_gives_another_rule_under_the_same_checks() -> None:
    assert Adam(0.1).adjust(eta=1) == Adam(1.0)
    assert OptimiserChain(ClipGrad(2), Adam()).adjust(eta=0.2, delta=2.5) == OptimiserChain(
        ClipGrad(2.5), Adam(0.2)
    )
    assert AccumGrad(2).adjust(n=3) == AccumGrad(3)
    for rule, fields in [
        (Adam(), {"eta": -1}),
        (AccumGrad(2), {"n": 0}),
        (Rprop(), {"ell": (2, 1)}),
        (RMSProp(), {"centred": None}),
        (AdamW(), {"couple": "no"}),
    ]:
        with pytest.raises((RuleError, RuleTypeError)):
            rule.adjust(**fields)
    with pytest.raises(RuleError, match="did you mean 'eta'"):
        Adam().adjust(lr=0.1)
    with pytest.raises(RuleTypeError):
        Momentum().adjust(rho="0.9")


def test_a_scheduled_number_is_that_of_each_applied_step() -> None:
    rule, model = Descent(lambda count: 0.5 / (1.0 + count.astype(np.float32))), np.float32([8.0])
    state, found = optimisers.setup(rule, model), []
    for g in (1.0, 1.0, None, 1.0):
        grad = None if g is None else np.float32([g])
        state, model = optimisers.update(state, model, grad)
        found.append(float(model[0]))
    np.testing.assert_allclose(found, [7.5, 7.25, 7.25, 7.25 - 0.5 / 3], rtol=1e-6)
