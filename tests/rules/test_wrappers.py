"""MixedPrecision and SkipNonFinite, which go around whole rules."""

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
    ClipNorm,
    Descent,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    SkipNonFinite,
    WeightDecay,
)
from optimisers.errors import DtypeError

from ..cases import ALL, Case, gradients

BAD = (np.nan, np.inf, -np.inf)


def run(rule: Any, model: Any, *grads: Any) -> tuple[Any, Any]:
    """Return state and model after a step for each gradient."""
    state = optimisers.setup(rule, model)
    for g in grads:
        state, model = optimisers.update(state, model, g)
    return state, model


def leaves(tree: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a: Any, b: Any) -> bool:
    pairs = zip(leaves(a), leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


class TestMixedPrecision:
    def test_small_steps_add_up(self) -> None:
        model, g = {"w": np.ones(1, np.float16)}, {"w": np.ones(1, np.float16)}
        _, after = run(MixedPrecision(Descent(1e-4)), model, *[g] * 10)
        assert after["w"] == np.float16(0.999)
        _, plain = run(Descent(1e-4), model, *[g] * 10)
        assert plain["w"] == 1

    def test_two_thousand_steps_of_adam_on_bfloat16(self) -> None:
        model = {"w": jnp.ones(1, jnp.bfloat16)}

        def body(carry: Any, _: None) -> Any:
            return optimisers.update(*carry, {"w": jnp.ones(1, jnp.bfloat16)}), None

        state = optimisers.setup(MixedPrecision(Adam(1e-3)), model)
        (state, model), _ = jax.lax.scan(body, (state, model), length=2000)
        master, (_, v, _) = state["w"].state
        np.testing.assert_allclose(master, -1, atol=1e-3)
        np.testing.assert_allclose(v, 1 - 0.999**2000, rtol=0.01)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_the_parameter_is_the_rounded_master_exactly(self, dtype: str) -> None:
        rng = np.random.default_rng(0)
        x = jnp.asarray(rng.normal(size=(300, 300)) * 10.0 ** rng.uniform(-6, 3, (300, 300)), dtype)
        state, model = run(MixedPrecision(Descent(0.1)), {"w": x}, {"w": x}, {"w": 1 / (x + 1e-3)})
        master = np.asarray(state["w"].state[0])
        assert master.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(model["w"]), master.astype(model["w"].dtype))

    @pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
    def test_the_master_is_kept_although_the_parameter_is_coarse(self, wrap: Any) -> None:
        # If rounding were skipped or repeated, the master would be taken for overwritten.
        step = wrap(optimisers.update)
        model = {"w": jnp.asarray([1.0, 3e-5, 1e-7, -0.0], jnp.float16)}
        state = optimisers.setup(MixedPrecision(Descent(1e-4)), model)
        g = {"w": jnp.asarray([1.0, 1e-2, 1e-3, 0.0], jnp.float16)}
        for _ in range(4):
            state, model = step(state, model, g)
        first = np.asarray(jnp.asarray([1.0, 3e-5, 1e-7, 0.0], jnp.float16), np.float32)
        wanted = first - 4e-4 * np.asarray(g["w"], np.float32)
        np.testing.assert_allclose(state["w"].state[0], wanted, rtol=1e-6, atol=1e-12)

    def test_a_parameter_written_from_outside_becomes_the_master(self) -> None:
        rule, one = MixedPrecision(Descent(1e-4)), np.ones(2, np.float16)
        state, model = run(rule, {"w": one}, {"w": one}, {"w": one})
        model["w"] = np.array([5.0, model["w"][1]], np.float16)
        state, model = optimisers.update(state, model, {"w": one})
        np.testing.assert_allclose(state["w"].state[0], [5 - 1e-4, 1 - 3e-4], rtol=1e-7)

    def test_it_wraps_chains_and_leaves_32_and_64_bits_as_they_are(self) -> None:
        rule = OptimiserChain(ClipNorm(1.0), WeightDecay(0.1), Adam(0.1))
        for dtype in (np.float32, np.float64, np.complex64):
            model = {"w": np.linspace(-1, 1, 5).astype(dtype)}
            grads = [{"w": g.astype(dtype)} for g in gradients(5, (5,))]
            state, mixed = run(MixedPrecision(rule), model, *grads)
            _, plain = run(rule, model, *grads)
            assert state["w"].state[0].dtype == dtype
            np.testing.assert_allclose(
                mixed["w"], plain["w"], rtol=1e-6 if dtype != np.float64 else 1e-14
            )

    def test_float64_copies_need_the_x64_mode(self) -> None:
        rule, x = MixedPrecision(Descent(1e-9), np.float64), jnp.ones(2, jnp.float32)
        with pytest.raises(DtypeError, match="x64 mode is off"):
            optimisers.setup(rule, {"w": x})
        with jax.enable_x64(True):
            state, model = run(rule, {"w": x}, *[{"w": x}] * 3)
            assert state["w"].state[0].dtype == np.float64
            np.testing.assert_allclose(state["w"].state[0], 1 - 3e-9, rtol=0, atol=1e-15)
            assert model["w"].dtype == np.float32

    def test_it_is_put_on_and_taken_off_a_running_state(self) -> None:
        grads = [{"w": g.astype(np.float16)} for g in gradients(4, (3,))]
        model = {"w": np.ones(3, np.float16)}
        state, model = run(Adam(1e-3), model, *grads[:2])
        on = optimisers.adjust(state, MixedPrecision(Adam(1e-3)))
        assert same(on["w"].state[1], state["w"].state)
        on, there = optimisers.update(on, model, grads[2])
        _, (m, v, b) = on["w"].state
        off = optimisers.adjust(on, Adam(1e-3))
        assert same(off["w"].state, (m, v, b))
        assert same(there["w"], np.asarray(on["w"].state[0]).astype(np.float16))
        optimisers.update(off, there, grads[3])

    @ALL
    def test_a_rule_goes_on_the_same_with_it_without_it_and_with_it_again(self, case: Case) -> None:
        around = [cls for cls in (SkipNonFinite, MixedPrecision) if isinstance(case.rule, cls)]
        bare: Any = case.rule.rule if around else case.rule  # type: ignore[attr-defined]
        skips = around == [SkipNonFinite]

        def under(mixed: bool) -> Any:
            rule = MixedPrecision(bare) if mixed else bare
            return SkipNonFinite(rule) if skips else rule

        # float32, of which the master copy is the parameter itself.
        model = {"w": np.linspace(-1, 1, 3, dtype=np.float32), "b": np.ones(2, np.float32)}
        grads = [
            {n: np.resize(g, x.shape).astype(x.dtype) for n, x in model.items()}
            for g in gradients(6, (3,))
        ]
        wanted, plain = run(under(False), model, *grads)
        state = optimisers.setup(under(False), model)
        for mixed, g in zip((False, True, True, False, True, False), grads, strict=True):
            state = optimisers.adjust(state, under(mixed))
            state, model = optimisers.update(state, model, g)
        assert state["w"].rule == wanted["w"].rule
        assert same(model, plain)
        for name in model:
            assert same(state[name].state, wanted[name].state)


class TestSkipNonFinite:
    @pytest.mark.parametrize("bad", BAD)
    @pytest.mark.parametrize("write", [False, True])
    def test_one_bad_number_holds_everything_back(self, bad: float, write: bool) -> None:
        rule = SkipNonFinite(OptimiserChain(WeightDecay(0.1), Adam(0.1)))
        model = {"small": np.ones(3), "big": np.ones((200, 200), np.float32), "jax": jnp.ones(2)}
        good = {name: np.ones(x.shape) for name, x in model.items()}
        state, model = run(rule, model, good)
        before = [x.copy() for x in leaves(model)], leaves([state[n].state[1] for n in model])
        update = optimisers.update_ if write else optimisers.update
        wrong = {**good, "small": np.array([1.0, bad, 1.0])}
        for count in (1, 2, 3):
            state, model = update(state, model, wrong)
            assert same((leaves(model), leaves([state[n].state[1] for n in model])), before)
            assert {int(state[n].state[0]) for n in model} == {count}
        state, model = update(state, model, good)
        assert all(np.isfinite(x).all() for x in leaves((state, model)))
        assert not same(leaves(model), before[0])

    def test_skipped_calls_leave_no_trace(self) -> None:
        rule = SkipNonFinite(OptimiserChain(AccumGrad(2), Momentum(0.1)))
        good = [{"a": g[:1], "b": g[1:]} for g in gradients(6, (3,))]
        bad = {"a": np.array([np.inf]), "b": None}
        model = {"a": np.zeros(1), "b": np.zeros(2)}
        gaps = [good[0], bad, good[1], good[2], bad, bad, good[3], bad, good[4], good[5]]
        state, after = run(rule, model, *gaps)
        _, wanted = run(rule, model, *good)
        assert same(after, wanted)
        assert int(state["a"].state[0]) == 4

    def test_frozen_and_missing_parameters_are_not_looked_at(self) -> None:
        rule, one = SkipNonFinite(Descent(1.0)), np.ones(1)
        model = {"a": np.zeros(1), "b": np.zeros(1)}
        state = optimisers.freeze(optimisers.setup(rule, model), "b")
        _, after = optimisers.update(state, model, {"a": one, "b": np.array([np.nan])})
        assert (after["a"], after["b"]) == (-1, 0)

    def test_the_total_of_a_tied_parameter_is_what_counts(self) -> None:
        t = np.zeros(1, np.float32)
        rule, big = SkipNonFinite(Descent(1.0)), np.full(1, 3e38, np.float32)
        _, after = run(rule, {"a": t, "b": t, "c": np.zeros(1)}, {"a": big, "b": big, "c": big})
        assert same(after["c"], np.zeros(1))

    def test_under_jit_and_in_a_scan(self) -> None:
        rule, model = SkipNonFinite(MixedPrecision(Adam(0.1))), {"w": jnp.ones(3, jnp.bfloat16)}
        grads = jnp.ones((5, 3)).at[1, 2].set(jnp.nan).at[3, 0].set(jnp.inf)

        def body(carry: Any, g: Any) -> Any:
            return optimisers.update(*carry, {"w": g}), None

        first = optimisers.setup(rule, model), model
        (state, after), _ = jax.lax.scan(body, first, grads)
        assert int(state["w"].state[0]) == 2
        _, wanted = run(rule, model, *[{"w": jnp.ones(3)}] * 3)
        np.testing.assert_array_equal(np.asarray(after["w"]), np.asarray(wanted["w"]))

    def test_a_derivative_through_a_skipped_step_is_finite(self) -> None:
        model = {"w": jnp.ones(2)}

        def loss(eta: Any) -> Any:
            state = optimisers.setup(SkipNonFinite(Adam(eta)), model)
            grads = {"w": jnp.array([1.0, jnp.nan])}
            _, after = optimisers.update(state, model, grads)
            return jnp.sum(after["w"])

        assert jax.jit(jax.grad(loss))(0.1) == 0

    def test_higher_gradients_are_looked_at_too(self) -> None:
        rule, one = SkipNonFinite(Descent(1.0)), np.ones(1)
        model = {"w": np.zeros(1)}
        state = optimisers.setup(rule, model)
        _, after = optimisers.update(state, model, {"w": one}, {"w": one * np.nan})
        assert after["w"] == 0
