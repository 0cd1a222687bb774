"""Rules per path, ties declared by path, and states that are kept in another setup."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import (
    Adam,
    AdamW,
    Descent,
    Lion,
    Momentum,
    adjust,
    freeze,
    get_path,
    setup,
    update,
    update_,
)
from optimisers.errors import ArgumentError, DtypeError, OptimiserWarning, StructureError

from .trees import assert_same

MODEL = {
    "enc": {"w": np.ones((2, 2)), "bias": np.ones(2)},
    "dec": [{"w": np.ones((2, 2)), "bias": np.ones(2)}],
    "bias": np.ones(1),
}


def test_the_first_pattern_that_matches_gives_the_rule() -> None:
    state = setup({"**/bias": Descent(0.1), "**": AdamW()}, MODEL)
    places = ("enc/w", "enc/bias", "dec/0/w", "dec/0/bias", "bias")
    rules = [get_path(state, place).rule for place in places]
    assert rules == [AdamW(), Descent(0.1), AdamW(), Descent(0.1), Descent(0.1)]
    state = setup(
        {"enc/w": Adam(1), ("dec",): Adam(2), re.compile("^enc"): Adam(3), "**": Adam(4)}, MODEL
    )
    assert [get_path(state, place).rule.eta for place in places] == [1, 3, 2, 2, 4]
    state = setup({lambda path, x: x.ndim == 2: Momentum(), "**": Descent()}, MODEL)
    assert type(state["dec"][0].w.rule) is Momentum
    assert type(state["bias"].rule) is Descent


def test_rules_of_one_state_each_do_their_own() -> None:
    model = {"w": np.array([1.0]), "b": np.array([1.0])}
    state = setup({"b": Descent(0.5), "**": AdamW(0.1, lambda_=0.01)}, model)
    state, model = update(state, model, {"w": np.array([0.5]), "b": np.array([1.0])})
    np.testing.assert_allclose([model["w"][0], model["b"][0]], [0.899, 0.5], atol=1e-7)


def test_a_decay_mask_is_one_line() -> None:
    state = setup(lambda path, x: AdamW(lambda_=0.1 if x.ndim >= 2 else 0), MODEL)
    assert (state["enc"].w.rule.lambda_, state["enc"].bias.rule.lambda_) == (0.1, 0.0)


def test_a_rule_of_none_leaves_a_parameter_untrained() -> None:
    for rules in (
        lambda path, x: None if path[0] == "enc" else Descent(0.5),
        {"enc": None, "**": Descent(0.5)},
    ):
        state = setup(rules, MODEL)
        with pytest.raises(AttributeError, match="is not a parameter"):
            _ = state["enc"]["w"].rule
        _, new = update(state, MODEL, MODEL)
        assert new["enc"]["w"] is MODEL["enc"]["w"]
        np.testing.assert_array_equal(new["bias"], [0.5])
    with pytest.warns(OptimiserWarning, match="nothing in the model is trainable"):
        setup(lambda path, x: None, MODEL)


def test_what_no_pattern_matches_raises_and_what_matches_nothing_warns() -> None:
    with pytest.raises(StructureError, match=re.escape('matches model["bias"]; add "**"')):
        setup({"enc": Adam(), "dec": Adam()}, MODEL)
    with pytest.warns(OptimiserWarning, match=re.escape("'**/biases' matches no parameter")):
        setup({"**/biases": Adam(), "**": Adam()}, MODEL)


def test_a_tied_parameter_needs_one_rule() -> None:
    w = np.ones(2)
    model = {"enc": w, "dec": w, "b": np.ones(2, complex)}
    with pytest.raises(StructureError, match="are one parameter, but the rules give it Descent"):
        setup({"enc": Adam(), "**": Descent()}, model)
    with pytest.raises(StructureError, match="are one parameter"):
        setup(lambda path, x: None if path == ("enc",) else Adam(), model)
    setup({"enc": Adam(0.1), "**": Adam(0.1)}, model)
    with pytest.raises(DtypeError, match=re.escape('cannot train model["b"] with Lion')):
        setup({"b": Lion(), "**": Adam()}, model)


def test_rules_that_are_none_are_named() -> None:
    for rules, message in [
        ({"**": 0.1}, "cannot use float as a rule"),
        (lambda path, x: Adam, r"got the class Adam; make a rule of it: Adam\(\)"),
        (0.1, "cannot use float as a rule"),
        (Adam, "got the class Adam"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            setup(rules, MODEL)
    with pytest.raises(ArgumentError, match="setup takes the rule first, then the model"):
        setup(MODEL, Adam())


# Ties


def test_ties_declared_by_path_are_one_parameter() -> None:
    model = {"enc": {"w": np.ones(2)}, "dec": {"w": np.ones(2)}, "b": np.ones(2)}
    grads = {"enc": {"w": np.full(2, 1.0)}, "dec": {"w": np.full(2, 3.0)}, "b": np.ones(2)}
    for tie in [("enc/w", "dec/w"), (("enc", "w"), ("dec", "w"))]:
        state = setup(Adam(0.1), model, ties=[tie])
        for function in (update, update_):
            copy = jax.tree.map(np.copy, model)
            _, new = function(setup(Adam(0.1), copy, ties=[tie]), copy, grads)
            np.testing.assert_allclose(new["enc"]["w"], 0.9, atol=1e-7)
            assert new["enc"]["w"] is new["dec"]["w"]
        assert 'tied to model["' in repr(state)


def test_declared_ties_hold_inside_jit() -> None:
    model = {"a": jnp.ones(2), "b": jnp.ones(2), "c": jnp.ones(2)}

    @jax.jit
    def trained(model: Any) -> Any:
        state = setup(Momentum(0.1), model, ties=[("a", "c")])
        return update(state, model, model)

    state, new = trained(model)
    np.testing.assert_allclose([new["a"][0], new["b"][0], new["c"][0]], [0.8, 0.9, 0.8], atol=1e-7)
    again = jax.jit(lambda m: setup(Descent(), m, ties=state))(model)
    assert again._box.layout.params[0].paths == (("a",), ("c",))


def test_no_ties_for_models_that_share_an_array_by_accident() -> None:
    zeros = np.zeros(2)
    model = {"a": zeros, "b": zeros}
    state = setup(Descent(1.0), model, ties=())
    _, new = update(state, model, {"a": np.ones(2), "b": np.full(2, 5.0)})
    np.testing.assert_array_equal([new["a"], new["b"]], [[-1, -1], [-5, -5]])
    with pytest.raises(ValueError, match="overlap in memory"):
        update_(state, model, {"a": np.ones(2), "b": np.ones(2)})


@pytest.mark.parametrize(
    ("ties", "message"),
    [
        ([("a", "b")], "their values differ"),
        ([("a", "c")], r"they are float64\[2\] and float64\[3\]"),
        ([("a", "d")], r"they are float64\[2\] and float32\[2\]"),
        ([("a", "q")], "the model, for ties, has nothing at 'q'"),
        ([("a", "n")], "has nothing at 'n'"),
        (["ab"], "takes groups of paths, got 'ab'"),
        ([("a", 3)], "a path is a tuple of keys or a string"),
    ],
)
def test_ties_that_are_none_raise(ties: Any, message: str) -> None:
    model = {
        "a": np.ones(2), "b": np.zeros(2), "c": np.ones(3), "d": np.ones(2, np.float32), "n": 1,
    }  # fmt: skip
    with pytest.raises((StructureError, ArgumentError), match=message):
        setup(Adam(), model, ties=ties)


def test_groups_of_ties_with_a_place_in_common_are_one() -> None:
    model = [np.ones(2) for _ in range(5)]
    state = setup(Adam(), model, ties=[("0", "1"), ("2", "3"), ("3", "1")])
    assert [p.paths for p in state._box.layout.params] == [((0,), (1,), (2,), (3,)), ((4,),)]


# Keeping


def test_a_new_head_on_an_old_body_keeps_the_bodys_state() -> None:
    model = {"body": [jnp.ones((3, 2)), jnp.ones(3)], "head": jnp.ones(3)}
    state = setup(Adam(0.1), model)
    for _ in range(2):
        state, model = update(state, model, model)
    state = freeze(adjust(state, 0.5), "body/0")
    new = setup(Adam(0.2), {**model, "head": jnp.ones(4)}, keep=state)
    assert_same(new["body"][0].state, state["body"][0].state)
    assert_same(new["body"][1].state, state["body"][1].state)
    assert (new["body"][0].frozen, new["body"][1].frozen) == (True, False)
    assert [get_path(new, f"{p}/steps") for p in ("body/0", "body/1", "head")] == [2, 2, 0]
    assert new["body"][0].rule == new["head"].rule == Adam(0.2)
    assert not np.any(new["head"].state[0])
    # and other kinds of change begin afresh
    for rules, other in [
        (Momentum(), model),
        (AdamW(), model),
        (Adam(), jax.tree.map(lambda x: x.astype(jnp.bfloat16), model)),
        (Adam(), [model]),
    ]:
        with pytest.warns(OptimiserWarning, match="nothing is kept"):
            fresh = setup(rules, other, keep=state)
        assert_same(jax.tree.leaves(fresh), jax.tree.leaves(setup(rules, other)))


def test_keeping_everything_is_never_having_stopped() -> None:
    model = {"a": jnp.ones(3), "b": {"c": np.ones((2, 2))}, "big": jnp.ones((140, 140))}
    state = setup(Adam(0.1), model)
    state, model = update(state, model, model)
    again = setup(Adam(0.1), model, keep=state)
    assert_same(update(again, model, model), update(state, model, model))
    mixed = setup({"a": Momentum(), "**": Adam(0.1)}, model, keep=state)
    assert [get_path(mixed, p + "/steps") for p in ("a", "b/c", "big")] == [0, 1, 1]
    with pytest.raises(ArgumentError, match="expected a State"):
        setup(Adam(), model, keep=model)  # type: ignore[arg-type]
