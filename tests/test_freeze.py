"""freeze and thaw: nothing frozen moves, costs work, or loses its state; partition and combine."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import (
    Adam,
    AdamW,
    Descent,
    Momentum,
    adjust,
    combine,
    freeze,
    freeze_,
    get_path,
    partition,
    setup,
    thaw,
    thaw_,
    update,
    update_,
)
from optimisers.errors import ArgumentError, StructureError

from .compiles import compiles
from .trees import assert_same, grads_like, model_of_all_kinds


def test_the_published_numbers() -> None:
    model = {"x": np.array([1.0, 2.0]), "y": np.array([3.0, 4.0])}
    grads = {"x": np.array([1.0, 10.0]), "y": np.array([100.0, 1000.0])}
    state = freeze(setup(Descent(0.1), model), "y")
    state, model = update(state, model, grads)
    np.testing.assert_allclose([*model["x"], *model["y"]], [0.9, 1.0, 3.0, 4.0], atol=1e-9)
    _, model = update(thaw(adjust(state, 0.2)), model, grads)
    np.testing.assert_allclose([*model["x"], *model["y"]], [0.7, -1.0, -17, -196], atol=1e-9)


def test_frozen_parameters_do_not_decay_and_keep_their_state() -> None:
    model = model_of_all_kinds()
    grads, state = grads_like(model), setup(AdamW(0.1, lambda_=0.1), model)
    state, model = update(state, model, grads)
    still = freeze(state)
    assert_same(update(still, model, grads), (still, model))
    part = freeze(state, "list/**")
    after, moved = update(part, model, grads)
    assert_same(moved["list"], model["list"])
    assert moved["tied"] is moved["list"][1]  # a tied parameter is frozen at all its places
    assert_same(after["list"][0].state, state["list"][0].state)
    assert (get_path(after, "list/0/steps"), get_path(after, "jax/steps")) == (1, 2)
    assert_same(update(thaw(part), model, grads), update(state, model, grads))


def test_freezing_by_every_kind_of_pattern() -> None:
    model = {"enc": {"w": np.ones((2, 2)), "b": np.ones(2)}, "dec": [np.ones((2, 2)), np.ones(2)]}
    state = setup(Descent(), model)

    def frozen(state: Any) -> list[bool]:
        return [
            state["enc"]["w"].frozen,
            state.enc.b.frozen,
            *(p.frozen for p in map(state.dec.__getitem__, (0, 1))),
        ]

    assert (
        frozen(freeze(state, "enc"))
        == frozen(freeze(state, "enc/**"))
        == [True, True, False, False]
    )
    assert frozen(freeze(state, "*/b")) == [False, True, False, False]
    assert frozen(freeze(state, "**/b")) == [False, True, False, False]
    assert frozen(freeze(state, "**/1")) == [False, False, False, True]
    assert frozen(freeze(state, re.compile("c/.$"))) == [True, True, True, True]
    assert frozen(freeze(state, lambda path, x: x.ndim >= 2)) == [True, False, True, False]
    assert frozen(freeze(state, ("dec", 1))) == [False, False, False, True]
    assert freeze(state["enc"], "w")["w"].frozen
    assert frozen(state) == [False, False, False, False]
    freeze_(state["enc"], "w")
    freeze_(state.dec)
    assert frozen(state) == [True, False, True, True]
    thaw_(state["enc"])
    thaw_(state, "dec/0")
    assert frozen(state) == [False, False, False, True]
    with pytest.raises(StructureError, match="'head' selects no parameter"):
        freeze(state, "head")
    with pytest.raises(ArgumentError, match="expected a State"):
        freeze(model)  # type: ignore[arg-type]


def test_a_slash_in_a_name_is_not_a_branch() -> None:
    state = setup(Descent(), {"a/b": np.ones(1), "a": {"b": np.ones(1)}})
    state = freeze(state, r"a\/b")
    assert (state["a/b"].frozen, state["a"]["b"].frozen) == (True, False)
    state = freeze(setup(Descent(), {"a/b": np.ones(1), "a": {"b": np.ones(1)}}), "**/b")
    assert (state["a/b"].frozen, state["a"]["b"].frozen) == (False, True)


def test_ten_toggles_compile_at_most_twice() -> None:
    model: Any = {"enc": [jnp.ones(7), jnp.ones((140, 130))], "dec": [jnp.ones(7)]}
    grads = jax.tree.map(jnp.ones_like, model)

    def toggled(step: Any) -> int:
        state, now = setup(Adam(), model), model
        state, now = step(state, now, grads)
        with compiles() as count:
            for i in range(10):
                state = (freeze, thaw)[i % 2](state, "enc")
                state, now = step(state, now, grads)
        return count()

    assert toggled(update) <= 2
    assert toggled(jax.jit(update)) <= 2


def test_a_frozen_parameter_costs_no_work() -> None:
    model = {"body": jnp.ones((300, 300)), "head": jnp.ones(3)}
    state = freeze(setup(Adam(), model), "body")
    text = str(jax.make_jaxpr(lambda s, m: update(s, m, m))(state, model))
    assert "f32[300,300] = " not in text
    body, m = model["body"], state["body"].state[0]
    state, model = update_(state, model, {"body": jnp.ones((300, 300)), "head": jnp.ones(3)})
    assert model["body"] is body
    assert state["body"].state[0] is m


def test_frozen_flags_hold_inside_a_scan() -> None:
    model = {"a": jnp.ones(2), "b": jnp.ones(3)}
    state = freeze(setup(Momentum(0.1), model), "b")

    def body(carry: Any, _: Any) -> Any:
        return update(*carry, carry[1]), None

    (state, model), _ = jax.lax.scan(body, (state, model), None, length=3)
    np.testing.assert_array_equal(model["b"], np.ones(3))
    assert (get_path(state, "a/steps"), get_path(state, "b/steps")) == (3, 0)


# Differentiating only what is trained


def test_partition_and_combine_are_inverse() -> None:
    model = model_of_all_kinds()
    state = freeze(setup(Adam(), model), "list/0")
    trained, rest = partition(state, model)
    assert trained["list"][0] is None
    assert trained["name"] is None
    assert trained["int"] is None
    assert rest["list"][0] is model["list"][0]
    assert (rest["jax"], rest["tied"], rest["name"]) == (None, None, "not a parameter")
    again = combine(trained, rest)
    assert jax.tree.structure(again) == jax.tree.structure(model)
    assert all(a is b for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True))
    assert again is not model
    assert again["list"] is not model["list"]


def test_parts_are_combined_by_name_and_not_by_position() -> None:
    rest = OrderedDict(b=None, a={"w": 2.0})
    assert combine(OrderedDict(a={"w": None}, b=1.0), rest) == OrderedDict(a={"w": 2.0}, b=1.0)
    with pytest.raises(StructureError, match=r'not parts of one model: only one has model\["c"\]'):
        combine({"a": 1.0}, {"a": None, "c": 2.0})


def test_an_ad_library_differentiates_only_what_is_trained() -> None:
    model = {"body": jnp.ones(3), "head": jnp.ones(3), "act": jnp.tanh, "ids": jnp.arange(3)}
    state = freeze(setup(Descent(0.1), model), "body")

    def loss(trained: Any, rest: Any) -> Any:
        m = combine(trained, rest)
        return (m["act"](m["body"] * m["head"]) * m["ids"].astype("float32")).sum()

    trained, rest = partition(state, model)
    grads = jax.grad(loss)(trained, rest)
    assert grads["body"] is None
    assert grads["ids"] is None
    _, new = update(state, model, grads)
    assert new["body"] is model["body"]
    assert not np.allclose(new["head"], 1)


def test_partition_of_a_part_and_of_another_model() -> None:
    model = {"enc": {"w": jnp.ones(2), "b": jnp.ones(1)}, "dec": jnp.ones(3)}
    state = freeze(setup(Descent(), model), "enc/b")
    trained, rest = partition(state["enc"], model["enc"])
    assert trained["b"] is None
    assert rest["w"] is None
    with pytest.raises(ValueError, match="does not belong to this model"):
        partition(state, {"enc": {"w": jnp.ones(2)}, "dec": jnp.ones(3)})
    with pytest.raises(StructureError, match="cannot combine"):
        combine(trained, {"w": None})
    with pytest.raises(StructureError, match=r"both have something at model\[\"w\"\]"):
        combine(trained, {"w": jnp.ones(2), "b": None})
