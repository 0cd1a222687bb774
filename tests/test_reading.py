"""Reading and writing: totals, steps, parameters, paths, repr and summary."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import (
    AccumGrad,
    Adam,
    ClipGlobalNorm,
    Descent,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    SkipNonFinite,
    adjust,
    freeze,
    get_path,
    has_path,
    set_path,
    setup,
    steps,
    summary,
    total_gradients,
    trainables,
    update,
)
from optimisers.errors import ArgumentError, ShapeError, StructureError

from .cases import ALL, Case
from .trees import assert_same, grads_like, model_of_all_kinds


class Pair(NamedTuple):
    left: Any
    right: Any


# Totals


def test_total_gradients_stand_at_the_first_place() -> None:
    model = model_of_all_kinds()
    grads, state = grads_like(model), setup(Adam(), model)
    total = total_gradients(state, model, grads)
    assert total["tied"] is None
    assert total["name"] is None
    np.testing.assert_allclose(total["list"][1], grads["list"][1] + grads["tied"], rtol=1e-6)
    assert total["numpy"] is grads["numpy"]
    assert_same(update(state, model, total), update(state, model, grads))
    assert total_gradients(state, model, grads, tied="total")["list"][1] is grads["list"][1]
    nothing = total_gradients(state, model, None)
    assert jax.tree.leaves(nothing) == []
    assert total_gradients(state, model, {**grads, "list": None})["list"][1] is grads["tied"]


def test_total_gradients_of_a_part_under_jit_and_of_bad_gradients() -> None:
    model = {"a": {"w": jnp.ones(2)}, "b": jnp.ones(3)}
    state = setup(Adam(), model)
    assert total_gradients(state["a"], model["a"], {"w": 1 * jnp.ones(2)})["w"].shape == (2,)
    out = jax.jit(lambda s, m: total_gradients(s, m, m))(state, model)
    assert_same(out, model)
    with pytest.raises(ShapeError, match=r"float32\[3\], expected shape \[2\]"):
        total_gradients(state, model, {"a": {"w": jnp.ones(3)}, "b": None})
    with pytest.raises(ArgumentError):
        total_gradients(model, state, model)  # type: ignore[arg-type]


# Steps


@ALL
def test_steps_are_what_update_subtracts(case: Case) -> None:
    check_steps(case.rule, {"a": jnp.linspace(-1, 1, 6).reshape(3, 2)})


def test_steps_of_large_and_of_64_bit_parameters() -> None:
    model = {"big": jnp.linspace(-1, 1, 130 * 130).reshape(130, 130), "wide": np.linspace(0, 1, 5)}
    check_steps(OptimiserChain(ClipGlobalNorm(1.0), Adam(0.1)), model)


def check_steps(rule: Any, model: Any) -> None:
    state = setup(rule, model)
    for i in range(2):
        grads = grads_like(model, i)
        expected_state, expected = update(state, model, grads)
        new, moves = steps(state, model, grads)
        assert_same(new, expected_state)
        for name, x in model.items():
            np.testing.assert_allclose(x - moves[name], expected[name], rtol=1e-6, atol=1e-7)
        state, model = new, expected


def test_steps_of_16_bit_parameters_and_of_what_does_not_move() -> None:
    model = {"w": jnp.ones(1, jnp.bfloat16), "t": np.ones(2), "none": np.ones(1), "n": 3}
    model["u"] = model["t"]
    state = freeze(setup(Adam(1e-3), model), "none")
    grads = {**dict.fromkeys(model, np.ones(2)), "w": np.ones(1), "none": np.ones(1), "n": None}
    new, moves = steps(state, model, grads)
    assert (moves["w"].dtype, moves["none"], moves["n"]) == (jnp.float32, None, None)
    np.testing.assert_allclose(moves["w"], 1e-3, rtol=1e-4)
    assert moves["u"] is moves["t"]
    assert isinstance(moves["t"], np.ndarray)
    assert get_path(new, "none/steps") == 0
    state = setup(MixedPrecision(Descent(0.25)), {"w": model["w"]})
    np.testing.assert_array_equal(steps(state, {"w": model["w"]}, {"w": np.ones(1)})[1]["w"], 0.25)


def test_steps_where_the_rules_do_not_run_are_zero() -> None:
    model = {"w": np.ones(2)}
    for rule, g in [
        (OptimiserChain(AccumGrad(2), Descent(1.0)), [1.0, 1.0]),
        (SkipNonFinite(Descent(1.0)), [1.0, np.inf]),
    ]:
        _, moves = steps(setup(rule, model), model, {"w": np.array(g)})
        np.testing.assert_array_equal(moves["w"], [0, 0])


def test_steps_under_jit_and_of_torch(torch: ModuleType) -> None:
    model = {"w": torch.nn.Parameter(torch.ones(2)), "h": torch.ones(2, dtype=torch.bfloat16)}
    _, moves = steps(setup(Descent(0.5), model), model, {"w": torch.ones(2), "h": torch.ones(2)})
    assert (moves["w"].dtype, moves["h"].dtype) == (torch.float32, torch.float32)
    assert not isinstance(moves["w"], torch.nn.Parameter)
    assert moves["w"].tolist() == [0.5, 0.5]
    tree = {"a": jnp.ones(2), "b": jnp.ones((130, 130))}
    state = setup(OptimiserChain(ClipGlobalNorm(1.0), Momentum()), tree)
    assert_same(jax.jit(lambda s, m: steps(s, m, m))(state, tree), steps(state, tree, tree))


# Parameters


def test_trainables_are_each_parameter_once() -> None:
    model = model_of_all_kinds()
    found = trainables(model, path=True)
    assert [path for path, _ in found] == [
        ("big",), ("half",), ("jax",), ("list", 0), ("list", 1), ("numpy",), ("scalar",),
    ]  # fmt: skip
    assert all(x is get_path(model, path) for path, x in found)
    assert len(trainables(model)) == 7
    assert len(trainables(model, ties=())) == 8
    assert trainables({"n": 3, "i": np.arange(2)}) == []


def test_trainables_are_differentiable_and_keep_ties_by_a_state() -> None:
    w = jnp.array([1.0, 2.0])
    model = {"a": w, "b": {"c": jnp.ones(1), "tied": w}}
    state = setup(Descent(), model)

    def penalty(model: Any, ties: Any) -> Any:
        return sum((x**2).sum() for x in trainables(model, ties=ties))

    assert float(penalty(model, None)) == 6.0
    assert float(jax.jit(lambda m: penalty(m, state))(model)) == 6.0
    assert float(jax.jit(lambda m: penalty(m, [("a", "b/tied")]))(model)) == 6.0
    grads = jax.grad(penalty)(model, state)
    np.testing.assert_array_equal(total_gradients(state, model, grads)["a"], [2, 4])


# Paths


def test_get_path_finds_in_every_kind_of_tree() -> None:
    mlp = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    model = {"net": mlp, "pair": Pair(np.ones(1), [np.zeros(2)]), 3: {"a/b": 1.0}, ("t", 1): 2.0}
    assert get_path(model, "net/layers/0/weight") is mlp.layers[0].weight
    assert get_path(model, ("net", "layers", 0, "weight")) is mlp.layers[0].weight
    assert get_path(model, "pair/right/0").shape == (2,)
    assert get_path(model, r"3/a\/b") == 1.0
    assert get_path(model, (3, "a/b")) == 1.0
    assert get_path(model, (("t", 1),)) == 2.0
    assert get_path(model, "") is get_path(model, ()) is model
    grads = {"net": None, "pair": (np.ones(1), None)}
    assert get_path(grads, "net") is None
    for path in ("net/layer", "net/layers/9", "pair/right/0/x", ("pair", "0"), "4"):
        assert not has_path(model, path)
        with pytest.raises(StructureError, match=r"has no .*; it has"):
            get_path(model, path)
    assert not has_path(grads, "net/layers")
    with pytest.raises(ArgumentError, match="a path is a tuple of keys or a string"):
        has_path(model, 3)  # type: ignore[arg-type]


def test_set_path_makes_a_new_tree_and_shares_the_rest() -> None:
    mlp = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    model = {"net": mlp, "pair": Pair(np.ones(1), [np.zeros(2)])}
    new = set_path(model, "net/layers/0/bias", jnp.ones(3))
    np.testing.assert_array_equal(new["net"].layers[0].bias, np.ones(3))
    assert new["pair"] is model["pair"]
    assert new["net"].layers[0].weight is mlp.layers[0].weight
    assert model["net"] is mlp
    new = set_path(new, "pair/right", None)
    assert new["pair"] == (model["pair"].left, None)
    assert isinstance(new["pair"], Pair)
    assert set_path(model, (), 3) == 3
    with pytest.raises(StructureError, match="tree has no 'nets'; it has 'net', 'pair'"):
        set_path(model, "nets", 1)


def test_paths_reach_into_a_state() -> None:
    model = {"enc": [jnp.ones(2)], "dec": {"w": np.ones((2, 2))}}
    state, model = update(setup(Adam(0.1), model), model, model)
    assert get_path(state, "enc/0").rule == Adam(0.1)
    assert get_path(state["enc"], "0/steps") == 1
    assert get_path(state, "dec/w/frozen") is False
    assert get_path(state, "dec/w/rule") == Adam(0.1)
    assert get_path(state, "dec/w/hyperparameters/eta") == 0.1
    np.testing.assert_allclose(get_path(state, "dec/w/state/0"), 0.1)
    np.testing.assert_allclose(get_path(state, ("enc", 0, "state", 2, 1)), 0.999**2, rtol=1e-6)
    assert has_path(state, "enc/0/state/1")
    for path in ("enc/1", "enc/0/moments", "enc/0/state/3", "nothing"):
        assert not has_path(state, path)
    with pytest.raises(StructureError, match=r'state\["dec"\]\["w"\] has rule, state, .*no \'m\''):
        get_path(state, "dec/w/m")


@pytest.mark.parametrize("size", [2, 150])
def test_moments_are_set_by_path(size: int) -> None:
    model = {"a": jnp.ones((size, size)), "b": np.ones((size, size)), "c": jnp.ones(1)}
    state = setup(Adam(), model)
    for name in ("a", "b"):
        new = set_path(state, f"{name}/state/0", np.full((size, size), 0.5))
        np.testing.assert_array_equal(new[name].state[0], np.full((size, size), 0.5))
        assert new[name].state[0].dtype == model[name].dtype
        assert not np.any(state[name].state[0])
        assert_same(new["c"].state, state["c"].state)
        update(new, model, model)
    new = set_path(state, "a/steps", 7)
    assert get_path(new, "a/steps") == 7
    assert set_path(state, "a/frozen", True)["a"].frozen
    assert not set_path(freeze(state), "a/frozen", False)["a"].frozen
    assert set_path(state, "a/hyperparameters/eta", 0.5)["a"].rule == Adam(0.5)
    assert set_path(state, "a/rule", Adam(0.25))["a"].rule == Adam(0.25)
    assert jax.tree.structure(set_path(state, "a/steps", 7)) == jax.tree.structure(state)
    for path, value, message in [
        ("a/state/0", np.ones(3), r"cannot set the state of model\[\"a\"\]"),
        ("a/state", np.ones((size, size)), "cannot set the state"),
        ("a/steps", -1, "cannot set steps"),
        ("a", state, "cannot set .* as a whole; say which of rule, state"),
        ("a/rule/eta", 3, "cannot set rule"),
    ]:
        with pytest.raises(StructureError, match=message):
            set_path(state, path, value)


# Looking


def test_repr_is_bounded_and_mirrors_the_model_and_marks_ties() -> None:
    shared = np.ones((3, 4), np.float32)
    model = {"enc": [shared, np.ones(3)], "dec": {"w": shared}}
    state = freeze(setup(Momentum(), model), "enc/1")
    assert repr(state) == (
        "State(\n"
        "  dict\n"
        '    ["dec"]: dict\n'
        '      ["w"]: float32[3, 4] Momentum(eta=0.01, rho=0.9) float32[3, 4], tied at 2 places\n'
        '    ["enc"]: list\n'
        '      [0]: tied to model["dec"]["w"]\n'
        "      [1]: float64[3] Momentum(eta=0.01, rho=0.9) float64[3], frozen\n"
        ")"
    )
    assert '["w"]' in repr(state["dec"])
    assert "Momentum" in repr(state["dec"].w)
    many = setup(Adam(), {f"layer{i}": {"w": np.ones((2, 2))} for i in range(200)})
    assert len(repr(many)) < 5000
    assert "more places" in repr(many)


def test_summary_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    shared = np.ones((3, 4), np.float32)
    model = {"enc": [shared, np.ones(3)], "dec": {"w": shared}}
    state = freeze(adjust(setup(Descent(), model), 0.5), "enc/1")
    state, _ = update(state, model, model)
    summary(state)
    assert capsys.readouterr().out == (
        "path   shape          dtype    rule              frozen  steps  bytes\n"
        "dec/w  [3, 4]         float32  Descent(eta=0.5)              1      8\n"
        "enc/0  tied to dec/w\n"
        "enc/1  [3]            float64  Descent(eta=0.5)  frozen      0     12\n"
        "total  15                                                          20\n"
    )
    summary(state["enc"])
    assert capsys.readouterr().out.splitlines()[1].startswith("0      [3, 4]")
    with pytest.raises(ArgumentError, match="expected a State"):
        summary(model)  # type: ignore[arg-type]
