"""Optax's transformations as rules: ties, None, freezing, adjusting, files, and what is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optimisers
from optimisers import (
    AccumGrad,
    ClipGlobalNorm,
    Descent,
    MixedPrecision,
    OptimiserChain,
    SkipNonFinite,
    WeightDecay,
    adjust,
    freeze,
    from_optax,
    load_state_dict,
    setup,
    state_dict,
    thaw,
    update,
    update_,
)
from optimisers.errors import ArgumentError, RuleError, RuleTypeError, StateError
from optimisers.testing import check_rule

clip_adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
injected = optax.inject_hyperparams(optax.adamw)


def model_and_grads() -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(1)
    shapes = {"w": (2, 3), "b": (3,), "s": ()}
    model, grads = ({k: np.asarray(rng.normal(size=s)) for k, s in shapes.items()} for _ in "12")
    return model, grads


def stepped(rule: Any, model: Any, *grads: Any) -> Any:
    state = setup(rule, model)
    for g in grads:
        state, model = update(state, model, g)
    return model


def close(got: Any, expected: Any) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), got, expected
    )


def test_a_rule_of_optax_is_the_rule_of_ours_eagerly_and_in_place() -> None:
    model, grads = model_and_grads()
    expected = stepped(optimisers.Adam(0.1), model, grads, grads)
    close(stepped(from_optax(optax.adam(0.1)), model, grads, grads), expected)
    state = setup(from_optax(optax.adam(0.1)), model)
    w = model["w"]
    for _ in range(2):
        state, model = update_(state, model, grads)
    close(model, expected)
    assert model["w"] is w


def test_a_global_norm_is_that_of_ours() -> None:
    model, grads = model_and_grads()
    ours = OptimiserChain(ClipGlobalNorm(1.0), optimisers.Adam(0.1))
    close(stepped(from_optax(clip_adam), model, grads), stepped(ours, model, grads))


def test_tied_parameters_count_once_with_the_sum_of_their_gradients() -> None:
    t = np.array([1.0, 2.0])
    clip = from_optax(optax.chain(optax.clip_by_global_norm(6.5), optax.sgd(1.0)))
    model = {"a": t, "b": t, "c": np.zeros(1)}
    grads = {"a": np.array([1.0, 4.0]), "b": np.array([2.0, 0.0]), "c": np.array([12.0])}
    out = stepped(clip, model, grads)  # of norm 13 all together
    close(out, {"a": t - [1.5, 2.0], "b": t - [1.5, 2.0], "c": np.array([-6.0])})
    assert out["a"] is out["b"]


def test_no_gradient_moves_nothing_and_counts_in_no_norm() -> None:
    model, grads = model_and_grads()
    state = setup(from_optax(clip_adam), model)
    after, moved = update(state, model, {**grads, "w": None})
    assert moved["w"] is model["w"]
    assert int(after["w"].state[1][0].count) == 0
    assert int(after["b"].state[1][0].count) == 1
    rest = {name: model[name] for name in ("b", "s")}
    expected = stepped(from_optax(clip_adam), rest, {name: grads[name] for name in rest})
    close({name: moved[name] for name in rest}, expected)


def test_a_frozen_parameter_stands_still_and_counts_in_no_norm() -> None:
    model, grads = model_and_grads()
    state = freeze(setup(from_optax(clip_adam), model), "w")
    state, moved = update(state, model, grads)
    assert moved["w"] is model["w"]
    rest = {name: model[name] for name in ("b", "s")}
    expected = stepped(from_optax(clip_adam), rest, {name: grads[name] for name in rest})
    close({name: moved[name] for name in rest}, expected)
    _, moved = update(thaw(state), moved, grads)
    assert not np.array_equal(moved["w"], model["w"])


def test_each_transformation_has_its_own_norm() -> None:
    def clip() -> Any:
        return from_optax(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0)))

    model = {"a": np.zeros(1), "b": np.zeros(1)}
    grads = {"a": np.array([3.0]), "b": np.array([4.0])}
    close(stepped({"a": clip(), "b": clip()}, model, grads), {"a": -np.ones(1), "b": -np.ones(1)})
    close(stepped(clip(), model, grads), {"a": np.array([-0.6]), "b": np.array([-0.8])})


def test_it_stands_in_chains_and_wrappers() -> None:
    model, grads = model_and_grads()
    bad = {**grads, "b": np.full(3, np.nan)}
    rule = SkipNonFinite(OptimiserChain(WeightDecay(0.1), AccumGrad(2), from_optax(clip_adam)))
    ours = OptimiserChain(WeightDecay(0.1), AccumGrad(2), ClipGlobalNorm(1.0), optimisers.Adam(0.1))
    close(stepped(rule, model, grads, bad, grads), stepped(ours, model, grads, grads))


def test_a_part_of_an_optimiser_is_added_as_in_optax_unless_its_sign_is_turned() -> None:
    model, grads = {"w": np.zeros(2)}, {"w": np.array([5.0, -0.5])}
    close(stepped(from_optax(optax.clip(1.0)), model, grads), {"w": np.array([1.0, -0.5])})
    turned = from_optax(optax.chain(optax.clip(1.0), optax.scale(-1.0)))
    out = stepped(OptimiserChain(turned, Descent(0.1)), model, grads)
    close(out, {"w": np.array([-0.1, 0.05])})


def test_parameters_of_every_library_and_dtype_share_a_norm(torch: ModuleType) -> None:
    model = {"f": np.zeros(1, np.float32), "d": np.zeros(1), "t": torch.zeros(1),
             "h": jnp.zeros(1, jnp.bfloat16)}  # fmt: skip
    grads = {"f": np.ones(1, np.float32), "d": np.ones(1), "t": torch.ones(1),
             "h": jnp.ones(1, jnp.bfloat16)}  # fmt: skip
    out = stepped(
        from_optax(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0))), model, grads
    )
    assert [float(x[0]) for x in out.values()] == [-0.5] * 4


def test_optax_itself_can_leave_out_what_is_not_finite() -> None:
    model, grads = model_and_grads()
    bad = {**grads, "b": np.full(3, np.nan)}
    rule = from_optax(optax.apply_if_finite(optax.sgd(0.1), 5))
    close(stepped(rule, model, bad, grads), stepped(Descent(0.1), model, grads))


def test_a_master_copy_is_what_optax_steps_with() -> None:
    model, grads = {"w": np.ones(3, np.float16)}, {"w": np.full(3, 1e-4, np.float16)}
    out = stepped(MixedPrecision(from_optax(optax.sgd(1.0))), model, *[grads] * 10)
    np.testing.assert_array_equal(out["w"], np.full(3, 0.999, np.float16))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_dtypes_stay_and_narrow_ones_are_computed_in_float32(dtype: str) -> None:
    model = {"w": jnp.ones((2, 3), dtype), "b": jnp.ones(3, dtype)}
    state, out = update(setup(from_optax(clip_adam), model), model, model)
    assert {x.dtype for x in jax.tree.leaves(out)} == {jnp.dtype(dtype)}
    moment = state["w"].state[1][0].mu
    assert moment.dtype == ("complex64" if dtype == "complex64" else "float32")


def test_arrays_of_no_elements_and_of_none_are_fine() -> None:
    model = {"w": np.zeros((0, 3)), "b": np.array([3.0]), "s": np.array(4.0)}
    rule = from_optax(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0)))
    out = stepped(rule, model, model)
    close(out, {"w": model["w"], "b": np.array([2.4]), "s": np.array(3.2)})


def test_the_same_inside_jit_and_scan() -> None:
    model, grads = jax.tree.map(jnp.asarray, model_and_grads())
    state = setup(from_optax(clip_adam), model)
    step = jax.jit(lambda state, model: update(state, model, grads))

    def body(carry: Any, _: None) -> tuple[Any, None]:
        return update(*carry, grads), None

    (_, scanned), _ = jax.lax.scan(body, (state, model), None, length=2)
    eager = stepped(from_optax(clip_adam), model, grads, grads)
    jitted = step(*step(state, model))[1]
    for other in (scanned, jitted):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), other, eager)


def test_injected_numbers_are_fields_and_can_be_adjusted() -> None:
    model, grads = model_and_grads()
    state = setup(from_optax(injected(0.1, weight_decay=0.2)), model)
    assert state["w"].hyperparameters["eta"] == 0.1
    state = adjust(adjust(state, 0.5, "w"), b1=0.8, weight_decay=0.0)
    assert state["w"].hyperparameters["eta"] == 0.5
    assert state["b"].rule.b1 == 0.8
    _, out = update(state, model, grads)
    fine = {"w": optimisers.Adam(0.5, (0.8, 0.999)), "**": optimisers.Adam(0.1, (0.8, 0.999))}
    close(out, stepped(fine, model, grads))


def test_other_numbers_compile_nothing() -> None:
    model, grads = jax.tree.map(jnp.asarray, model_and_grads())
    state = setup(from_optax(injected(0.1)), model)
    traces = []

    @jax.jit
    def step(state: Any, model: Any) -> Any:
        traces.append(1)
        return update(state, model, grads)

    for eta in (0.1, 0.2, 0.3):
        state, model = step(adjust(state, eta), model)
    assert traces == [1]


def test_a_number_with_a_schedule_is_no_field_and_the_schedule_goes_on() -> None:
    schedule = optax.linear_schedule(1.0, 0.0, 4)
    rule = from_optax(optax.inject_hyperparams(optax.sgd)(schedule))
    with pytest.raises(RuleError, match="no schedule gives them"):
        adjust(rule, 0.1)
    model = {"w": np.zeros(1)}
    close(stepped(rule, model, *[{"w": np.ones(1)}] * 3), {"w": np.array([-(1 + 0.75 + 0.5)])})


def test_a_rule_can_be_replaced_by_one_whose_state_is_alike() -> None:
    model, grads = model_and_grads()
    state, _ = update(setup(from_optax(optax.adam(0.1)), model), model, grads)
    moment = state["w"].state[0].mu
    after = adjust(state, from_optax(optax.adam(0.2)))
    np.testing.assert_array_equal(after["w"].state[0].mu, moment)
    close(
        update(after, model, grads)[1],
        update(
            adjust(update(setup(optimisers.Adam(0.1), model), model, grads)[0], 0.2), model, grads
        )[1],
    )
    with pytest.raises(RuleError, match="cannot keep the state"):
        adjust(state, from_optax(optax.sgd(0.1, momentum=0.9)))
    kept = setup(from_optax(optax.adam(0.3)), model, keep=state)
    np.testing.assert_array_equal(kept["w"].state[0].mu, moment)


def test_files_hold_the_state_but_pickle_cannot() -> None:
    model, grads = model_and_grads()
    state, model = update(setup(from_optax(injected(0.1)), model), model, grads)
    found = state_dict(state)
    assert "0x" not in found["w/rule"]  # an address would differ in the next process
    again = load_state_dict(setup(from_optax(injected(0.7)), model), found)
    close(update(again, model, grads)[1], update(state, model, grads)[1])
    with pytest.raises(StateError, match=r"does not pickle .*; save state_dict\(state\)"):
        pickle.dumps(state)
    close(update(copy.deepcopy(state), model, grads)[1], update(state, model, grads)[1])


def test_a_rate_may_be_traced_and_differentiated() -> None:
    model, grads = {"w": jnp.ones(2)}, {"w": jnp.array([3.0, 4.0])}

    def after(eta: Any) -> Any:
        return stepped(from_optax(optax.inject_hyperparams(optax.sgd)(eta)), model, grads)[
            "w"
        ].sum()

    assert float(jax.jit(after)(0.5)) == 2 - 3.5
    assert float(jax.grad(after)(0.5)) == -7.0


def test_laws_of_rules_hold_but_for_the_roots_that_optax_does_not_guard() -> None:
    with pytest.raises(AssertionError, match="derivative") as caught:
        check_rule(from_optax(clip_adam))
    assert str(caught.value).count("\n- ") == 1


def test_it_prints_what_can_be_told() -> None:
    rule = from_optax(optax.adam(0.1))
    assert repr(rule) == "from_optax(chain(ScaleByAdamState, EmptyState))"
    assert "eta=0.1" in repr(from_optax(injected(0.1)))
    assert rule == from_optax(optax.GradientTransformation(rule.tx.init, rule.tx.update))  # type: ignore[attr-defined]
    assert rule != from_optax(optax.adam(0.1))


def by_name(look: Callable[[Any], bool]) -> Any:
    return lambda p: jax.tree_util.tree_map_with_path(lambda path, _: look(path), p)


@pytest.mark.parametrize(
    ("mask", "why"),
    [
        (by_name(lambda path: path[-1].key != "b"), "names of parameters"),
        (by_name(lambda path: "b" not in jax.tree_util.keystr(path)), "names of parameters"),
        (by_name(lambda path: "b" not in str(path)), "names of parameters"),
        (by_name(lambda path: path[-1] == "b"), "names of parameters"),
        ({"w": True, "b": False}, "tree of its own"),
        (lambda p: dict.fromkeys(p, True), "tree of its own"),
    ],
)
def test_what_looks_at_names_is_refused(mask: Any, why: str) -> None:
    with pytest.raises(RuleTypeError, match=why):
        from_optax(optax.adamw(0.1, mask=mask))


@pytest.mark.parametrize(
    "mix",
    [
        lambda a, b: a + b,
        lambda a, b: a * jnp.sum(b),
        lambda a, b: a * (jnp.sum(a) * jnp.sum(b)),
        lambda a, b: a / (jnp.sum(a) - jnp.sum(b)),
        lambda a, b: a * jnp.where(jnp.sum(b) > 0, 1.0, 2.0),
        lambda a, b: a * jnp.sum(jnp.concatenate([a.ravel(), b.ravel()])),
    ],
)
def test_parameters_that_meet_otherwise_than_in_a_reduction_are_refused(mix: Any) -> None:
    def mixed(updates: Any, params: Any) -> Any:
        leaves, tree = jax.tree.flatten(updates)
        return jax.tree.unflatten(tree, [mix(leaves[0], leaves[1]), *leaves[1:]])

    with pytest.raises(RuleTypeError, match=r"depends on the others|differently"):
        from_optax(optax.stateless(mixed))


def test_what_counts_parameters_is_refused() -> None:
    def mean(updates: Any, params: Any) -> Any:
        leaves = jax.tree.leaves(updates)
        total = sum(jnp.sum(x) for x in leaves) / len(leaves)
        return jax.tree.map(lambda x: x * total, updates)

    with pytest.raises(RuleTypeError, match="how many parameters there are"):
        from_optax(optax.stateless(mean))


@pytest.mark.parametrize("size", [7, 16])
def test_what_is_no_rule_for_some_shapes_only_is_refused_in_setup(size: int) -> None:
    def mixed(updates: Any, params: Any) -> Any:
        total = sum(x for x in jax.tree.leaves(updates) if x.shape == (size,))
        return jax.tree.map(lambda x: x + total if x.shape == (size,) else x, updates)

    rule = from_optax(optax.stateless(mixed))
    setup(rule, {"w": np.ones(5)})
    with pytest.raises(RuleTypeError, match="depends on the others"):
        setup(rule, {"w": np.ones(size)})


@pytest.mark.parametrize("special", [(7,), (16,), (3, 5), (), (2, 1, 1, 1, 1)])
def test_what_asks_for_one_shape_is_packed_only_where_all_are_alike(special: Any) -> None:
    def doubled(updates: Any, params: Any) -> Any:
        return jax.tree.map(lambda x: 2 * x if x.shape == special else x, updates)

    rule = from_optax(optax.stateless(doubled))
    shapes = [(7,), (16,), (3, 5), (), (2, 1, 1, 1, 1), (8,)]
    model = {str(shape): np.zeros(shape) for shape in shapes}
    out = stepped(rule, model, {str(shape): np.ones(shape) for shape in shapes})
    close(out, {str(s): np.full(s, 2.0 if s == special else 1.0) for s in shapes})


def test_what_cannot_take_a_shape_says_so_in_setup() -> None:
    def matrices(updates: Any, params: Any) -> Any:
        for x in jax.tree.leaves(updates):
            if x.ndim != 2:
                raise ValueError("matrices only")
        return updates

    rule = from_optax(optax.stateless(matrices))
    close(stepped(rule, {"w": np.ones((2, 3))}, {"w": np.ones((2, 3))}), {"w": 2 * np.ones((2, 3))})
    with pytest.raises(RuleTypeError, match="stateless: it raises ValueError: matrices only"):
        setup(rule, {"w": np.ones(3)})


@pytest.mark.parametrize("size", [15, 16, 100])
def test_what_looks_at_a_size_is_not_taken_for_elementwise(size: int) -> None:
    def large(updates: Any, params: Any) -> Any:
        return jax.tree.map(lambda x: 2 * x if x.size > size else x, updates)

    rule: Any = from_optax(optax.stateless(large))
    assert not rule.tx.packs((size,), np.float64)
    model = {"w": np.zeros(size), "b": np.zeros(size + 1)}
    out = stepped(rule, model, {"w": np.ones(size), "b": np.ones(size + 1)})
    close(out, {"w": np.ones(size), "b": 2 * np.ones(size + 1)})


@pytest.mark.parametrize("wrong", [optax.adam, optimisers.Adam(), 0.1, None])
def test_something_else_is_no_transformation(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="from_optax takes a transformation"):
        from_optax(wrong)


def test_setup_says_how_a_transformation_becomes_a_rule() -> None:
    with pytest.raises(ArgumentError, match=r"becomes one by from_optax"):
        setup(optax.adam(0.1), {"w": np.ones(1)})
