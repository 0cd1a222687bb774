"""Saving and loading: bit for bit, by path, atomic, and safe against any file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import (
    Adam,
    AdamW,
    Descent,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    WeightDecay,
    adjust,
    freeze,
    get_path,
    load,
    load_state_dict,
    save,
    setup,
    state_dict,
    update,
    update_,
)
from optimisers.errors import (
    ArgumentError,
    OptimiserWarning,
    StateError,
)
from optimisers.rules.rule import Rule

from .cases import ALL, Case
from .trees import assert_same, grads_like, model_of_all_kinds, small_model


@ALL
def test_save_load_go_on_is_never_stopped(case: Case, file: Path) -> None:
    model = small_model()
    state = setup(case.rule, model)
    for i in range(3):
        state, model = update(state, model, grads_like(model, i))
    save(file, state)
    loaded = load(file, setup(case.rule, small_model()))
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    assert_same(state_dict(loaded), state_dict(state))
    for i in range(2):
        grads = grads_like(model, 5 + i)
        loaded, again = update(loaded, model, grads)
        state, model = update(state, model, grads)
        assert_same(again, model)


def test_everything_is_kept_for_every_kind_of_storage(file: Path) -> None:
    model = model_of_all_kinds()
    model["complex"] = np.array([1 + 2j, 3])
    model["c64"] = jnp.array([1 + 2j, 3], jnp.complex64)
    model["empty"] = jnp.zeros((0, 3))
    state = setup(MixedPrecision(Adam(lambda n: 0.1 / (1 + n))), model)
    state, model = update(state, model, grads_like(model))
    state = freeze(adjust(state, epsilon=1e-6, where="list/0"), "big")
    save(file, state)
    fresh = setup(MixedPrecision(Adam(lambda n: 0.1 / (1 + n))), model)
    loaded = load(file, fresh)
    assert repr(loaded["big"]).count("frozen") == 1
    assert loaded["list"][0].hyperparameters["epsilon"] == 1e-6
    assert loaded["jax"].hyperparameters == state["jax"].hyperparameters
    assert [get_path(loaded, f"{p}/steps") for p in ("big", "half", "empty")] == [1, 1, 1]
    assert_same(state_dict(loaded), state_dict(state))
    grads = grads_like(model, 3)
    after, _ = update(state, model, grads)
    assert_same(state_dict(update_(loaded, model, grads)[0]), state_dict(after))


def test_a_state_dict_is_flat_and_plain() -> None:
    model = {"enc": [np.ones((2, 3), np.float32)], "a/b": {"w": np.ones(1)}}
    state = setup(OptimiserChain(WeightDecay(0.5), Momentum(0.1)), model)
    found = state_dict(state)
    assert found == {
        "a\\/b/w/param": "float64[1]",
        "a\\/b/w/rule": "OptimiserChain(rules=(WeightDecay(lambda_), Momentum(eta, rho)))",
        "a\\/b/w/frozen": False,
        "a\\/b/w/steps": 0,
        "a\\/b/w/hyperparameters/rules/0/lambda_": 0.5,
        "a\\/b/w/hyperparameters/rules/1/eta": 0.1,
        "a\\/b/w/hyperparameters/rules/1/rho": 0.9,
        "a\\/b/w/state/1": np.zeros(1),
        "enc/0/param": "float32[2, 3]",
        "enc/0/rule": "OptimiserChain(rules=(WeightDecay(lambda_), Momentum(eta, rho)))",
        "enc/0/frozen": False,
        "enc/0/steps": 0,
        "enc/0/hyperparameters/rules/0/lambda_": 0.5,
        "enc/0/hyperparameters/rules/1/eta": 0.1,
        "enc/0/hyperparameters/rules/1/rho": 0.9,
        "enc/0/state/1": pytest.approx(np.zeros((2, 3))),
    }
    json.dumps({k: v for k, v in found.items() if not isinstance(v, np.ndarray)})
    loaded = load_state_dict(state, found)
    found["enc/0/state/1"][:] = 7
    assert not np.any(loaded["enc"][0].state[1])
    assert not np.any(state["enc"][0].state[1])


def test_the_same_whatever_the_packing() -> None:
    model = {f"w{i}": jnp.full(3, i + 1.0) for i in range(60)}
    together = setup(Adam(), model)
    together, _ = update(together, model, model)
    apart = adjust(adjust(together, MixedPrecision(Adam()), "w1*"), Adam(), "w1*")
    halves = setup({"w1*": Adam(0.001), "**": Adam()}, model)
    found = state_dict(together)
    for state in (apart, load_state_dict(halves, found)):
        other = state_dict(state)
        assert other.keys() == found.keys()
        assert_same(other, found)


def test_assigned_by_path_not_by_order() -> None:
    model = {"x": np.ones(2), "y": np.ones(2)}
    state = setup(Momentum(), model)
    state, _ = update(state, model, {"x": np.ones(2), "y": np.full(2, 5.0)})

    class Other:
        def __init__(self) -> None:
            self.y, self.x = np.ones(2), np.ones(2)

    import optimisers

    optimisers.register(Other)
    loaded = load_state_dict(setup(Momentum(), Other()), state_dict(state))
    assert_same(loaded.x.state, state["x"].state)
    assert_same(loaded.y.state, state["y"].state)


def test_ties_are_saved_and_must_agree(file: Path) -> None:
    w = np.ones(2)
    tied = {"enc": w, "dec": w}
    state = setup(Adam(), tied)
    state, _ = update(state, tied, tied)
    save(file, state)
    v = np.ones(2)
    assert_same(load(file, setup(Adam(), {"enc": v, "dec": v}))["enc"].state, state["enc"].state)
    with pytest.raises(StateError, match="got one parameter at 'dec' and 'enc', expected at 'dec'"):
        load(file, setup(Adam(), {"enc": np.ones(2), "dec": np.ones(2)}))
    save(file, setup(Adam(), {"enc": np.ones(2), "dec": np.ones(2)}))
    with pytest.raises(StateError, match="got one parameter at 'dec', expected at 'dec' and 'enc'"):
        load(file, state)
    # The first place may be another one, where names are in another order.
    Pair = __import__("collections").namedtuple("Pair", "enc dec")
    loaded = load_state_dict(setup(Adam(), Pair(w, w)), state_dict(state))
    assert_same(loaded.enc.state, state["enc"].state)


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_changed(file: Path) -> None:
    model = {"a": np.ones(2), "b": np.ones(3), "c": np.ones(1), "d": np.ones(1)}
    state = setup({"c": AdamW(), "**": Adam()}, model)
    save(file, state)
    other = {"a": np.ones(4), "b": np.ones(3, np.float32), "c": np.ones(1), "e": np.ones(1)}
    target = setup({"c": AdamW(couple=False), "**": Adam()}, other)
    before = jax.tree.map(np.array, jax.tree.leaves(target))
    with pytest.raises(StateError) as caught:
        load(file, target)
    assert str(caught.value).splitlines() == [
        "what was saved does not fit the state:",
        '  model["a"]: got float64[2], expected float64[4]',
        '  model["b"]: got float64[3], expected float32[3]',
        '  model["c"]: got AdamW(eta, beta[2], lambda_, epsilon, couple=True), '
        "expected AdamW(eta, beta[2], lambda_, epsilon, couple=False)",
        '  model["e"]: missing',
        "  'd' is not in the state",
    ]
    assert_same(jax.tree.leaves(target), before)
    with pytest.warns(
        OptimiserWarning, match=r"(?s)kept from the state is:.*model\[\"a\"\].*'d'"
    ) as w:
        loaded = load(file, target, strict=False)
    assert len(w) == 1
    assert_same(jax.tree.leaves(loaded), before)


def test_what_fits_is_loaded_where_not_strict() -> None:
    model = {"a": np.ones(2), "b": np.ones(3)}
    state = setup(Momentum(0.5), model)
    state, _ = update(state, model, model)
    other = setup(Momentum(0.1), {"a": np.ones(2), "b": np.ones(4), "c": np.ones(1)})
    with pytest.warns(OptimiserWarning):
        loaded = load_state_dict(other, state_dict(state), strict=False)
    assert_same(loaded["a"].state, state["a"].state)
    assert [loaded[k].rule.eta for k in "abc"] == [0.5, 0.1, 0.1]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("w/frozen", 1, "got frozen = 1, expected True or False"),
        ("w/steps", -1, "got steps = -1, expected a count"),
        ("w/steps", True, "got steps = True"),
        ("w/hyperparameters/eta", "0.1", "got hyperparameters/eta = '0.1', expected a number"),
        ("w/hyperparameters/eta", -1.0, "eta must be finite and at least 0, got -1.0"),
        ("w/state/0", np.ones(3), r"got state/0 float64\[3\], expected float64\[2\]"),
        ("w/state/0", np.ones(2, np.float32), r"got state/0 float32\[2\], expected float64\[2\]"),
        ("w/state/0", None, "got state/0 object"),
        ("w/state/0", "x" * 5, "got state/0"),
        ("w/state/0", "missing", "state/0 is missing"),
        ("w/rule", "missing", "missing"),
        ("w/param", None, r"got None, expected float64\[2\]"),
        ("w/tied", "[[", "got one parameter at nothing, expected at 'w'"),
        ("v/w", 3, "'v/w' is unknown"),
    ],
)
def test_entries_that_are_nonsense_are_named(key: str, value: Any, message: str) -> None:
    state = setup(Adam(), {"w": np.ones(2)})
    found = state_dict(state)
    if isinstance(value, str) and value == "missing":
        del found[key]
    else:
        found[key] = value
    with pytest.raises(StateError, match=message):
        load_state_dict(state, found)


def test_more_of_what_is_wrong() -> None:
    state = setup(Adam(), {f"w{i}": np.ones(2) for i in range(30)})
    with pytest.raises(StateError, match="and 10 more"):
        load_state_dict(state, {})
    with pytest.raises(ArgumentError, match="expected what state_dict returned, got State"):
        load_state_dict(state, state)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected a State"):
        state_dict({"w": 1})  # type: ignore[arg-type]
    with pytest.raises(StateError, match="two are written '0'"):
        state_dict(setup(Adam(), {0: np.ones(1), "0": np.ones(1)}))
    with pytest.raises(StateError, match="is traced; call state_dict outside jit"):
        jax.jit(lambda s: state_dict(s)["a/steps"])(setup(Adam(), {"a": jnp.ones(1)}))
    scheduled = setup(Descent(lambda n: 0.1), {"w": np.ones(1)})
    with pytest.raises(StateError, match=r"got Descent\(eta\), expected Descent\(eta=schedule\)"):
        load_state_dict(scheduled, state_dict(setup(Descent(), {"w": np.ones(1)})))


def test_a_part_is_saved_with_its_own_paths(file: Path) -> None:
    model = {"enc": {"w": np.ones(2)}, "dec": {"w": np.ones(2)}}
    state, _ = update(setup(Momentum(), model), model, model)
    save(file, state["enc"])
    fresh = setup(Momentum(), model)
    loaded = load(file, fresh["dec"])
    assert_same(loaded["w"].state, state["enc"]["w"].state)
    assert not np.any(fresh["dec"]["w"].state)
    one = setup(Momentum(0.3), np.ones(2))
    assert load_state_dict(one, state_dict(one)).rule == Momentum(0.3)


def test_rules_with_a_state_of_any_kind(file: Path) -> None:
    @dataclass(frozen=True)
    class Odd(Rule):
        eta: float = 0.1

        def init(self, x: Any) -> Any:
            return {
                "a/b": jnp.zeros(3, jnp.bfloat16),
                "n": jnp.zeros((), jnp.int32),
                "key": (True,),
            }

        def apply(self, state: Any, x: Any, dx: Any) -> Any:
            return {**state, "n": state["n"] + 1, "a/b": state["a/b"] + 1}, self.eta * dx

    model = {"w": jnp.ones(2)}
    state, _ = update(setup(Odd(), model), model, model)
    save(file, state)
    loaded = load(file, setup(Odd(), model))
    assert_same(loaded["w"].state, state["w"].state)
    assert "w/state/a\\/b" in state_dict(state)
