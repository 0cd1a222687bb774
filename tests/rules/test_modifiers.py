"""What clips, gathers, and goes around rules: alone, in chains, and over a whole model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optimisers
from optimisers import (
    AccumGrad,
    Adam,
    ClipGlobalNorm,
    ClipNorm,
    Descent,
    Momentum,
    OptimiserChain,
    Rprop,
    SkipNonFinite,
    WeightDecay,
)
from optimisers.errors import NonFiniteError
from optimisers.rules.pick import with_children
from optimisers.rules.rule import Wrapper

from ..cases import ALL, Case, gradients

BIG = 200  # of a matrix that is too large to be packed


def run(rule: Any, model: Any, *grads: Any) -> tuple[Any, Any]:
    """Return state and model after a step for each gradient."""
    state = optimisers.setup(rule, model)
    for g in grads:
        state, model = optimisers.update(state, model, g)
    return state, model


def clipped(rule: Any, grads: Any) -> Any:
    """Return what a rule makes of gradients."""
    zeros = jax.tree.map(np.zeros_like, grads)
    _, model = run(OptimiserChain(rule, Descent(1.0)), zeros, grads)
    return jax.tree.map(np.negative, model)


def arrays(**lists: list[float]) -> dict[str, Any]:
    return {name: np.array(numbers, float) for name, numbers in lists.items()}


def test_clip_norm_is_per_array() -> None:
    found = clipped(ClipNorm(6.5), arrays(a=[3, 4], b=[12]))
    np.testing.assert_allclose(found["a"], [3, 4])
    np.testing.assert_allclose(found["b"], [6.5])


def test_clip_global_norm_is_over_all_arrays_and_its_last_value_can_be_read() -> None:
    found = clipped(ClipGlobalNorm(6.5), arrays(a=[3, 4], b=[12]))
    np.testing.assert_allclose(found["a"], [1.5, 2])
    np.testing.assert_allclose(found["b"], [6])
    rule, grads = OptimiserChain(ClipGlobalNorm(6.5), Adam()), arrays(a=[3, 4], b=[12])
    state, _ = run(rule, grads, grads)
    assert state["a"].state[0] == state["b"].state[0] == 13


@pytest.mark.parametrize("rule", [ClipNorm(1.0), ClipGlobalNorm(1.0)], ids=repr)
def test_norms_neither_overflow_nor_vanish(rule: Any) -> None:
    half = 2**-0.5
    for size, dtype in [(300, "float16"), (1e30, "float32"), (3e38, "float32"), (1e300, "float64")]:
        found = clipped(rule, {"w": np.full(2, size, dtype)})["w"]
        np.testing.assert_allclose(
            found.astype(float), half, rtol=1e-3 if dtype == "float16" else 1e-6
        )
    small = np.full(2, 1e-30, np.float32)
    tight = type(rule)(1e-31)
    np.testing.assert_allclose(clipped(tight, {"w": small})["w"], half * 1e-31, rtol=1e-5)


@pytest.mark.parametrize("rule", [ClipNorm(0), ClipGlobalNorm(0)], ids=repr)
def test_a_bound_of_zero_makes_zeros(rule: Any) -> None:
    for g in ([0.0, 0.0], [3.0, 4.0]):
        np.testing.assert_array_equal(clipped(rule, {"w": np.array(g)})["w"], [0, 0])


@pytest.mark.parametrize("p", [float("inf"), float("-inf"), 0, 1, 2, 3, 0.5, -1, -2.5, 100])
def test_every_norm_is_numpys(p: float) -> None:
    # All but the last of one shape, which is compiled once.
    for g in (gradients(1, (3,))[0], np.array([0.0, 3.0, -4.0]), np.zeros(3), np.zeros(0)):
        norm = np.linalg.norm(g, p) if g.all() and g.size else _norm_with_zeros(g, p)
        for bound in (0.3 * norm, 3.0 * norm) if norm else (0.3,):
            wanted = g * min(bound / norm, 1) if norm else g
            np.testing.assert_allclose(
                clipped(ClipNorm(bound, p), {"w": g})["w"], wanted, rtol=1e-13
            )


def _norm_with_zeros(g: Any, p: float) -> float:
    # NumPy divides by zero for negative p, where the limit is 0, and raises for an empty array.
    return 0.0 if g.size == 0 or p < 0 else float(np.linalg.norm(g, p))


def test_norms_of_tied_parameters_count_the_total_once() -> None:
    t = np.zeros(1)
    model = {"a": t, "b": t, "c": np.zeros(1)}
    grads = {"a": np.array([3.0]), "b": np.array([-3.0]), "c": np.array([4.0])}
    state, after = run(OptimiserChain(ClipGlobalNorm(2.0), Descent(1.0)), model, grads)
    assert state["c"].state[0] == 4
    np.testing.assert_allclose([after["a"], after["b"], after["c"]], [[0], [0], [-2]])


def test_frozen_and_missing_parameters_count_in_no_norm() -> None:
    rule = OptimiserChain(ClipGlobalNorm(100.0), Descent(1.0))
    model = arrays(a=[0], b=[0], c=[0])
    grads = arrays(a=[3], b=[500], c=[4])
    state = optimisers.freeze(optimisers.setup(rule, model), "b")
    state, _ = optimisers.update(state, model, grads)
    assert state["a"].state[0] == 5
    state = optimisers.setup(rule, model)
    state, after = optimisers.update(state, model, {**grads, "b": None})
    assert (state["a"].state[0], state["b"].state[0]) == (5, 0)
    np.testing.assert_array_equal(after["b"], [0])


def mixed_model() -> tuple[Any, Any]:
    """Return a model over packs, bundles, dtypes and libraries, and its gradients."""
    shapes = {"small": (3,), "other": (2, 2), "big": (BIG, BIG)}
    make = {
        f"{name} {kind}": (kind, shape)
        for name, shape in shapes.items()
        for kind in ("jax", "float64", "float32", "float16")
    }
    rng = np.random.default_rng(0)

    def leaf(kind: str, shape: tuple[int, ...]) -> Any:
        x = rng.normal(size=shape)
        return jnp.asarray(x, jnp.float32) if kind == "jax" else x.astype(kind)

    return tuple({name: leaf(*how) for name, how in make.items()} for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("jit", [False, True])
def test_a_global_norm_reaches_across_packs_bundles_and_dtypes(jit: bool) -> None:
    model, grads = mixed_model()
    if jit:
        keep = [name for name in model if "float64" not in name]
        model, grads = ({name: jnp.asarray(tree[name]) for name in keep} for tree in (model, grads))
    norm = np.sqrt(sum(np.sum(np.asarray(g, float) ** 2) for g in grads.values()))
    state = optimisers.setup(OptimiserChain(ClipGlobalNorm(2.0), Descent(1.0)), model)
    step = jax.jit(optimisers.update) if jit else optimisers.update
    state, after = step(state, model, grads)
    for name, x in model.items():
        wanted = np.asarray(x, float) - np.asarray(grads[name], float) * 2 / norm
        tolerance = 2e-3 if "16" in name else 1e-6
        np.testing.assert_allclose(np.asarray(after[name], float), wanted, tolerance, tolerance)
        np.testing.assert_allclose(state[name].state[0], norm, rtol=1e-6)


def test_a_global_norm_is_one_number_for_all_dtypes_at_a_power_of_two() -> None:
    # Rounded to float32 the largest element is 4, and its exponent another one.
    grads = {"a": np.array([4 - 1e-12]), "b": np.array([3.0], np.float32)}
    state, _ = run(OptimiserChain(ClipGlobalNorm(1.0)), grads, grads)
    np.testing.assert_allclose([state[n].state[0] for n in "ab"], 5, rtol=1e-7)
    huge = {"a": np.array([1e200]), "b": np.array([3.0], np.float32)}
    np.testing.assert_allclose(clipped(ClipGlobalNorm(1.0), huge)["a"], [1.0], rtol=1e-12)


def test_clip_norm_of_many_small_parameters_stays_packed() -> None:
    model = {f"w{i}": jnp.full(3, float(i)) for i in range(1000)}
    rule = OptimiserChain(ClipNorm(1.0), Momentum(0.1))
    state, after = run(rule, model, model)
    assert len(jax.tree.leaves(state)) < 200
    for i in (0, 1, 7, 999):
        size = min(float(i), 3**-0.5)
        np.testing.assert_allclose(after[f"w{i}"], i - 0.1 * size, rtol=1e-5)


def test_a_norm_that_is_not_finite_raises_before_anything_is_written() -> None:
    for rule in (ClipNorm(10.0), ClipGlobalNorm(10.0, throw=True)):
        model = arrays(good=[1, 2], bad=[1, 2, 3])
        state = optimisers.setup(OptimiserChain(rule, Momentum(0.1)), model)
        with pytest.raises(NonFiniteError, match=r'norm is not finite.*model\["'):
            optimisers.update_(state, model, arrays(good=[1, 1], bad=[1, 10, np.nan]))
        np.testing.assert_array_equal(model["good"], [1, 2])
        np.testing.assert_array_equal(state["good"].state[1], [0, 0])


def test_without_throw_an_infinite_norm_leaves_zeros_and_nan() -> None:
    for rule in (ClipNorm(10.0, throw=False), ClipGlobalNorm(10.0)):
        found = clipped(rule, arrays(a=[1, 10, np.inf], b=[5, 5]) if "Global" in repr(rule)
                        else arrays(a=[1, 10, np.inf]))  # fmt: skip
        np.testing.assert_array_equal(found["a"], [0, 0, np.nan])
        assert np.isnan(clipped(rule, arrays(a=[1, np.nan]))["a"]).all()


def mean(batch: list[Any]) -> Any:
    """Return the mean of gradients, None counting as zero; None if there is no other."""
    there = [g for g in batch if g is not None]
    return sum(there) / len(batch) if there else None


class TestAccumGrad:
    def test_nothing_moves_between_emissions_and_then_by_the_mean(self) -> None:
        rule = OptimiserChain(AccumGrad(2), WeightDecay(0.01), Descent(0.1))
        model = arrays(x=[1], y=[2])
        state, model = run(rule, model, arrays(x=[33], y=[0]))
        assert (model["x"], model["y"]) == (1, 2)
        state, model = optimisers.update(state, model, arrays(x=[0], y=[444]))
        np.testing.assert_allclose([model["x"], model["y"]], [[-0.651], [-20.202]])

    def test_order_matters_with_a_norm(self) -> None:
        grads = [{"w": np.array([30.0])}, {"w": np.array([0.0])}]
        for rules, wanted in [
            ((AccumGrad(2), ClipNorm(10)), 10),
            ((ClipNorm(10), AccumGrad(2)), 5),
        ]:
            _, model = run(OptimiserChain(*rules, Descent(1.0)), {"w": np.zeros(1)}, *grads)
            np.testing.assert_allclose(model["w"], [-wanted])

    def test_a_thousand_small_gradients_add_up_in_float16(self) -> None:
        rule, g = OptimiserChain(AccumGrad(1000), Descent(1.0)), np.full(1, 1e-4, np.float16)
        _, model = run(rule, {"w": np.zeros_like(g)}, *[{"w": g}] * 1000)
        assert model["w"] == -np.float16(1e-4)

    def test_a_missing_gradient_counts_as_zero_and_all_missing_as_none(self) -> None:
        rule = OptimiserChain(AccumGrad(2), Momentum(1.0))
        six = np.array([6.0])
        state, model = run(rule, arrays(a=[0], b=[0]), {"a": six, "b": None}, {"a": six, "b": six})
        np.testing.assert_array_equal([model["a"], model["b"]], [[-6], [-3]])
        # None in both: b stands still, its velocity too, though Momentum would roll on.
        state, model = optimisers.update(state, model, {"a": six, "b": None})
        state, model = optimisers.update(state, model, {"a": six, "b": None})
        np.testing.assert_array_equal(model["b"], [-3])
        np.testing.assert_array_equal(state["b"].state[1], [3])
        state, model = optimisers.update(state, model, {"a": None, "b": six})
        state, model = optimisers.update(state, model, {"a": six, "b": six})
        np.testing.assert_allclose(model["b"], [-3 - (0.9 * 3 + 6)])

    def test_emission_acts_though_the_last_gradient_is_missing(self) -> None:
        rule = OptimiserChain(AccumGrad(2), Descent(1.0))
        six = np.array([6.0])
        for size in (1, BIG * BIG):  # packed or not
            grown = {name: np.full(size, 6.0) for name in "ab"}
            zeros = {name: np.zeros(size) for name in "ab"}
            _, model = run(rule, zeros, grown, {**grown, "b": None})
            assert (model["a"] == -six).all()
            assert (model["b"] == -six / 2).all()

    def test_a_call_without_any_gradient_does_not_count(self) -> None:
        rule, six = OptimiserChain(AccumGrad(2), Descent(1.0)), np.array([6.0])
        model = arrays(a=[0], b=[0])
        state, model = run(rule, model, {"a": six, "b": None}, None, {"a": None, "b": None})
        assert float(state["a"].state[0][1]) == 1
        _, model = optimisers.update(state, model, {"a": six, "b": six})
        np.testing.assert_array_equal([model["a"], model["b"]], [[-6], [-3]])

    @ALL
    def test_it_equals_one_step_on_the_mean_for_every_rule_after_it(self, case: Case) -> None:
        def first(rule: Any) -> Any:
            # Inside what goes around whole rules, before the rest.
            around = isinstance(rule, Wrapper) and rule.outside
            return with_children(rule, first) if around else OptimiserChain(AccumGrad(2), rule)

        present = {"a": (1, 1, 1, 0, 1, 1), "b": (1, 0, 0, 0, 0, 1), "never": (0,) * 6}
        model = {"a": np.linspace(-1.0, 1.5, 3), "b": np.ones((2, 2)), "never": np.ones(2)}
        micro = [
            {n: gradients(6, x.shape)[i] if present[n][i] else None for n, x in model.items()}
            for i in range(6)
        ]
        means = [{n: mean([micro[i][n], micro[i + 1][n]]) for n in model} for i in (0, 2, 4)]
        _, gathered = run(first(case.rule), model, *micro)
        _, plain = run(case.rule, model, *means)
        for n in model:
            np.testing.assert_allclose(gathered[n], plain[n], rtol=1e-13, atol=1e-13)

    def test_it_fires_at_once_after_n_was_lowered_and_divides_by_what_it_summed(self) -> None:
        rule, g = OptimiserChain(AccumGrad(5), Descent(1.0)), arrays(w=[6])
        state, model = run(rule, arrays(w=[0]), g, g, g)
        state = optimisers.adjust(state, n=2)
        state, model = optimisers.update(state, model, g)
        np.testing.assert_array_equal(model["w"], [-6])
        state, model = optimisers.update(state, model, g)
        state, model = optimisers.update(state, model, g)
        np.testing.assert_array_equal(model["w"], [-12])

    def test_one_after_another_they_multiply(self) -> None:
        grads = [arrays(w=[float(i)]) for i in range(12)]
        rule = OptimiserChain(AccumGrad(2), AccumGrad(3), Momentum(1.0))
        _, nested = run(rule, arrays(w=[0]), *grads)
        _, flat = run(OptimiserChain(AccumGrad(6), Momentum(1.0)), arrays(w=[0]), *grads)
        np.testing.assert_allclose(nested["w"], flat["w"])

    def test_schedules_after_it_count_real_steps(self) -> None:
        rule = OptimiserChain(AccumGrad(2), Descent(lambda count: 1.0 / (1 + count)))
        found, model = [], arrays(w=[0])
        state = optimisers.setup(rule, model)
        for _ in range(4):
            state, model = optimisers.update(state, model, arrays(w=[1]))
            found.append(float(model["w"][0]))
        np.testing.assert_allclose(found, [0, -1, -1, -1.5])

    def test_a_global_norm_after_it_is_that_of_the_means(self) -> None:
        rule = OptimiserChain(AccumGrad(2), ClipGlobalNorm(5.0), Descent(1.0))
        grads = [arrays(a=[3], b=[8]), arrays(a=[9], b=[8])]
        state, model = run(rule, arrays(a=[0], b=[0]), grads[0])
        assert float(state["a"].state[1]) == 0
        state, model = optimisers.update(state, model, grads[1])
        assert float(state["a"].state[1]) == 10
        np.testing.assert_allclose([model["a"], model["b"]], [[-3], [-4]])

    def test_it_works_in_a_scan(self) -> None:
        rule, model = OptimiserChain(AccumGrad(2), Adam(0.1)), {"w": jnp.ones(3)}
        grads = jnp.asarray(gradients(6, (3,)), jnp.float32)

        def body(carry: Any, g: Any) -> Any:
            return optimisers.update(*carry, {"w": g}), None

        (_, scanned), _ = jax.lax.scan(body, (optimisers.setup(rule, model), model), grads)
        _, plain = run(rule, model, *[{"w": g} for g in grads])
        np.testing.assert_allclose(scanned["w"], plain["w"], rtol=1e-6)


@pytest.mark.parametrize("size", [2, BIG * BIG])
def test_adjusting_the_eta_of_rprop_rescales_its_step_sizes(size: int) -> None:
    g = {"w": np.ones(size)}
    state, _ = run(OptimiserChain(Rprop(0.1)), g, g, g)

    def sizes(state: Any) -> Any:
        return state["w"].state[0][1]

    np.testing.assert_allclose(sizes(state), 0.12)
    state = optimisers.adjust(state, 0.2)
    np.testing.assert_allclose(sizes(state), 0.24)
    still = optimisers.adjust(state, 0.0)
    np.testing.assert_array_equal(sizes(still), 0)
    np.testing.assert_allclose(sizes(optimisers.adjust(still, 0.3)), 0.3)
    np.testing.assert_allclose(sizes(optimisers.adjust(still, 99.0)), 50.0)


def test_skip_non_finite_elsewhere_than_outermost_raises() -> None:
    with pytest.raises(TypeError, match="cannot stand inside OptimiserChain"):
        OptimiserChain(SkipNonFinite(Adam()))
