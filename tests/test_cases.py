"""Small inputs and their right outcomes, each worked out by hand, each standing for its whole kind.

Numbers are float64, and exact to 1e-9 where nothing else is said.
"""

from __future__ import annotations

import collections
import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optimisers as opt
from optimisers import (
    Adam,
    AdamW,
    ClipNorm,
    Descent,
    Momentum,
    OptimiserChain,
    setup,
    update,
    update_,
)
from optimisers.errors import (
    AliasError,
    NonFiniteError,
    OptimiserWarning,
    ShapeError,
    StructureError,
)

BOTH = pytest.mark.parametrize("step", [update, update_])


def arr(*values: float) -> Any:
    return np.array(values, np.float64)


def once(rule: Any, model: Any, grads: Any, step: Any = update, **options: Any) -> Any:
    """Return the model after one step from a fresh state."""
    return step(setup(rule, model), model, grads, **options)[1]


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-9)


@BOTH
def test_only_arrays_are_trained_and_the_rest_comes_back_as_it_is(step: Any) -> None:
    model = {"w": arr(1, 2), "act": np.sin, "n": 3}
    new = once(Descent(0.1), model, {"w": arr(1, 1), "act": None, "n": None}, step)
    near(new["w"], [0.9, 1.9])
    assert new["act"] is np.sin
    assert new["n"] == 3


@BOTH
def test_a_zero_gradient_is_a_gradient_and_none_is_not(step: Any) -> None:
    x = arr(1)
    state, x = step(setup(Adam(0.1), x), x, arr(1))
    near(x, [0.9])
    still, kept = step(copy.deepcopy(state), x.copy(), None)
    near(kept, [0.9])
    assert repr(still.state) == repr(state.state)
    moving, x = step(state, x, arr(0))
    near(x, [0.8329941765])
    assert repr(moving.state) != repr(still.state)


@BOTH
def test_what_does_not_fit_is_named(step: Any) -> None:
    model = [arr(1), arr(2), arr(3)]
    state = setup(Descent(), model)
    with pytest.raises(
        StructureError, match=r"nothing at model\[2\]: got a list of 2 where the mod"
    ):
        step(state, model, [arr(1), arr(1)])
    with pytest.raises(StructureError, match=r"grads\[3\], but model has no such item"):
        step(state, model, [arr(1), arr(1), arr(1), arr(1)])
    named = {"net": {"w": arr(1, 2)}}
    state = setup(Descent(), named)
    with pytest.raises(StructureError, match=r'grads\["net"\]\["typo"\].*it has \'w\''):
        step(state, named, {"net": {"w": arr(1, 2), "typo": arr(1)}})
    with pytest.raises(
        StructureError, match=r'at model\["net"\]: got a list of 1, expected a cont'
    ):
        step(state, named, {"net": [arr(1, 2)]})
    with pytest.raises(
        ShapeError, match=r'model\["net"\]\["w"\].*float64\[1, 2\], expected shape \[2\]'
    ):
        step(state, named, {"net": {"w": arr(1, 2)[None]}})


@BOTH
def test_parameters_and_their_state_keep_their_dtypes(step: Any) -> None:
    model = {
        "half": np.ones(2, np.float16), "single": np.ones(2, np.float32),
        "int": np.arange(2), "bool": np.array([True]),
    }  # fmt: skip
    before = copy.deepcopy(model)
    state = setup(Adam(0.1), model)
    for _ in range(3):
        state, model = step(state, model, {name: np.ones(x.shape) for name, x in model.items()})
        assert (model["half"].dtype, model["single"].dtype) == (np.float16, np.float32)
        dtypes = {
            str(leaf.dtype)
            for leaf in jax.tree.leaves((state["half"].state, state["single"].state))
        }
        assert dtypes == {"float32"}
    assert np.array_equal(model["int"], before["int"])
    assert np.array_equal(model["bool"], before["bool"])


@BOTH
@pytest.mark.parametrize("keys", ["abc", [2, 0, 1], [("p", 1), ("p", 0), ("q",)], ["a", 1, (2,)]])
def test_keys_of_any_kind_in_any_order(step: Any, keys: Any) -> None:
    a, b, c = keys
    model = {a: arr(1, 2), b: arr(3, 4), c: 1}
    grads = {c: None, b: None, a: 2 * model[a]}
    new = once(AdamW(0.1), model, grads, step)
    near(new[a], [0.9, 1.9])
    near(new[b], [3, 4])
    assert new[c] == 1
    assert list(new) == [a, b, c]


@BOTH
def test_children_that_are_not_trained_are_left_alone(step: Any) -> None:
    @opt.register(children=("a", "c"), trainable=("a",))
    class Three:
        def __init__(self) -> None:
            self.a, self.b, self.c = arr(1, 2), arr(3), arr(4)

    model = Three()
    new = once(Momentum(0.1, 0.9), model, {"a": arr(2, 4), "c": arr(9)}, step)
    near(new.a, [0.8, 1.6])
    assert (new.b, new.c) == (arr(3), arr(4))


@BOTH
def test_an_attribute_that_is_not_trained_is_never_looked_at(step: Any) -> None:
    @opt.register(children=("w", "missing", "raising"), trainable=("w",))
    class Lazy:
        def __init__(self) -> None:
            self.w = arr(1)

        @property
        def raising(self) -> Any:
            raise RuntimeError

    near(once(Descent(0.1), Lazy(), {"w": arr(1)}, step).w, [0.9])


def test_nothing_to_train_is_a_warning_with_its_cure() -> None:
    for model in ({"n": 3, "s": "text"}, [np.arange(3)], (), None):
        with pytest.warns(
            OptimiserWarning, match=r"nothing in the model is trainable.*np\.asarray"
        ):
            state = setup(Adam(), model)
        assert update(state, model, None)[1] is model
    with pytest.warns(OptimiserWarning, match=r'model\["s"\] is a NumPy scalar.*np\.asarray'):
        setup(Adam(), {"s": np.float64(1), "w": arr(1)})

    class Unknown:
        def __init__(self) -> None:
            self.layers = [{"w": arr(1)}]

    with pytest.warns(OptimiserWarning, match=r"model\[1\] is a Unknown .*register\(Unknown\)"):
        setup(Adam(), [arr(1), Unknown()])


@BOTH
def test_none_at_a_leaf_a_branch_or_the_root_is_the_same(step: Any) -> None:
    model = {"enc": {"w": arr(1), "b": [arr(2)]}, "dec": arr(3)}
    for none in (None, {"enc": None, "dec": None}, {"enc": {"w": None, "b": None}, "dec": None}):
        new = once(Adam(), model, none, step)
        assert new["enc"]["w"] is model["enc"]["w"]
        assert (new["enc"]["w"], new["enc"]["b"][0], new["dec"]) == (1, 2, 3)


@BOTH
@pytest.mark.parametrize("gradient", [1.0, 1, np.float32(1), np.array(1.0), jnp.array(1.0)])
def test_an_array_of_no_dimension_trains_and_stays_one(step: Any, gradient: Any) -> None:
    new = once(Descent(0.1), {"a": np.array(2.0)}, {"a": gradient}, step)["a"]
    assert isinstance(new, np.ndarray)
    assert new.shape == ()
    near(new, 1.9)


@BOTH
def test_empty_arrays_and_containers_are_fine(step: Any) -> None:
    model = {
        "e": np.zeros((0, 3)),
        "d": {},
        "t": (),
        "n": None,
        "w": arr(1),
        "q": collections.deque(),
    }
    new = once(Adam(0.1), model, dict(model, w=arr(1)), step)
    assert new["e"].shape == (0, 3)
    near(new["w"], [0.9])
    assert (new["d"], new["t"], new["n"]) == ({}, (), None)


@BOTH
@pytest.mark.parametrize("lib", [np.array, jnp.array])
def test_gradients_at_tied_places_are_added(step: Any, lib: Any) -> None:
    def tied() -> Any:
        t = lib([1.0, 2.0])
        return (t, (lib([1.0, 2.0]), t))

    def g(x: float, y: float) -> Any:
        return np.array([x, y], np.float32)

    cases = [
        ((g(3, 3), (g(10, 10), g(7, 7))), [0, 1], [0, 1]),
        ((g(3, 3), None), [0.7, 1.7], [1, 2]),
        ((None, (g(5, 5), g(7, 7))), [0.3, 1.3], [0.5, 1.5]),
    ]
    for grads, ours, others in cases:
        new = once(Momentum(0.1), tied(), grads, step)
        assert new[0] is new[1][1]
        np.testing.assert_allclose(new[0], ours, atol=1e-6)
        np.testing.assert_allclose(new[1][0], others, atol=1e-6)


@BOTH
def test_a_tied_parameter_is_visited_once(step: Any) -> None:
    x = arr(1)
    near(once(Adam(0.1), [x, x], [arr(1), arr(3)], step)[0], [0.9])


@BOTH
def test_whether_gradients_are_one_object_says_nothing(step: Any) -> None:
    g = arr(1)
    x, y, z = arr(1), arr(1), arr(1)
    new = once(Descent(0.1), [x, x, y, z], [g, g, g, g], step)
    near(np.ravel(new), [0.8, 0.8, 0.9, 0.9])
    assert g == 1
    x = arr(1)
    near(once(Descent(0.1), [x, x], [g, g], step, tied="total")[1], [0.9])
    x = arr(1)
    near(once(Descent(0.1), [x, x], [None, g], step, tied="total")[0], [0.9])


def test_equal_values_are_not_tied_and_containers_stay_as_they_were() -> None:
    new = once(Descent(1.0), (np.zeros(2), np.zeros(2)), (arr(1, 1), None))
    near(np.ravel(new), [-1, -1, 0, 0])
    w = arr(1)
    for step in (update, update_):
        two = once(Descent(0.1), [{"w": w}, {"w": w}], [{"w": arr(1)}, None], step)
        assert two[0]["w"] is two[1]["w"]
        assert two[0] is not two[1]
        shared = {"w": arr(1)}
        same = once(Descent(0.1), [shared, shared], [{"w": arr(1)}, None], step)
        assert same[0] is same[1]
        near(same[0]["w"], [0.9])


def test_memory_is_never_written_twice() -> None:
    w = np.arange(4.0).reshape(2, 2)
    model = {"a": w, "b": w.T}
    g = {"a": np.ones((2, 2)), "b": np.ones((2, 2))}
    with pytest.raises(AliasError, match=r'model\["a"\] and model\["b"\] in place: they overlap'):
        once(Descent(), model, g, update_)
    assert np.array_equal(w, np.arange(4.0).reshape(2, 2))
    near(once(Descent(0.5), model, g)["b"], w.T - 0.5)
    even = {"a": w.reshape(-1)[::2], "b": w.reshape(-1)[1::2]}  # neighbours, but no overlap
    once(Descent(1.0), even, {"a": arr(1, 1), "b": arr(2, 2)}, update_)
    near(w, [[-1, -1], [1, 1]])


def test_clipnorm_measures_each_array_and_a_tie_on_its_total() -> None:
    a, b = arr(3, 4), arr(12)
    zero = {"a": np.zeros(2), "b": np.zeros(1)}
    new = once(OptimiserChain(ClipNorm(6.5), Descent(1.0)), zero, {"a": a, "b": b})
    near(new["a"], [-3, -4])
    near(new["b"], [-6.5])
    t = np.zeros(1)
    tied = once(
        OptimiserChain(ClipNorm(2.0), Descent(1.0)), [t, t, np.zeros(1)], [arr(3), arr(-3), arr(4)]
    )
    near(np.ravel(tied), [0, 0, -2])
    half = np.zeros(2, np.float16)
    scaled = once(OptimiserChain(ClipNorm(1.0), Descent(1.0)), half, np.full(2, 300, np.float16))
    np.testing.assert_allclose(scaled, [-0.7071, -0.7071], atol=5e-4)
    for bound, g in ((1.0, arr(0, 0)), (0.0, arr(3, 4))):
        near(once(OptimiserChain(ClipNorm(bound), Descent(1.0)), np.zeros(2), g), [0, 0])


@BOTH
def test_a_norm_that_is_not_finite_is_an_error_before_anything_is_written(step: Any) -> None:
    model = {"ok": jnp.ones(2), "x": np.zeros(3), "y": jnp.ones((200, 200))}
    state = setup(OptimiserChain(ClipNorm(1.0), Momentum()), model)
    g = {"ok": jnp.ones(2), "x": arr(1, 10, np.nan), "y": jnp.ones((200, 200))}
    with pytest.raises(NonFiniteError, match=r'ClipNorm.*at model\["x"\]; nothing was changed'):
        step(state, model, g)
    assert np.array_equal(model["x"], np.zeros(3))
    assert not np.any(state["y"].state[1])
    step(state, model, {**g, "x": None})
    lenient = OptimiserChain(ClipNorm(1.0, throw=False), Descent(1.0))
    new = once(lenient, np.zeros(3), arr(1, 10, np.inf), step)
    near(new[:2], [0, 0])
    assert np.isnan(new[2])


def test_wide_numpy_parameters_are_computed_wide_without_x64() -> None:
    rng = np.random.default_rng(0)
    x, small = rng.normal(size=5), jnp.ones(2)
    m, v, own = np.zeros(5), np.zeros(5), x.copy()
    model = {"x": x, "s": small}
    state = setup(Adam(0.01), model)
    for i in range(1, 6):
        g = rng.normal(size=5)
        state, model = update_(state, model, {"x": g, "s": small})
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        own = own - 0.01 * (m / (1 - 0.9**i)) / (np.sqrt(v / (1 - 0.999**i)) + 1e-8)
    np.testing.assert_allclose(model["x"], own, rtol=1e-12)
    assert model["x"] is x
    assert model["s"].dtype == jnp.float32
    assert not jax.config.read("jax_enable_x64")


def test_in_place_steps_on_numpy_keep_the_object_or_spare_it() -> None:
    w = arr(1, 2)
    model = {"w": w}
    new = once(Descent(0.1), model, {"w": arr(1, 1)}, update_)
    assert new is model
    assert new["w"] is w
    near(w, [0.9, 1.9])
    locked = arr(1, 2)
    locked.flags.writeable = False
    model = {"w": locked}
    new = once(Descent(0.1), model, {"w": arr(1, 1)}, update_)
    assert new is model
    near(locked, [1, 2])
    near(new["w"], [0.9, 1.9])


@pytest.mark.parametrize("leaf", [lambda: arr(1), lambda: jnp.ones(1)])
def test_deep_nests_and_many_leaves_work(leaf: Any) -> None:
    for kind in ("list", "dict"):
        deep, g = leaf(), leaf()
        for _ in range(900):
            deep, g = ([deep], [g]) if kind == "list" else ({"k": deep}, {"k": g})
        state = setup(Descent(0.5), deep)
        for step in (update, update_):
            state, deep = step(state, deep, g)
        for _ in range(900):
            deep = deep[0] if kind == "list" else deep["k"]
        near(deep, [0])


def test_deeper_than_that_is_one_clear_error() -> None:
    deep: Any = arr(1)
    for _ in range(1100):
        deep = [deep]
    with pytest.raises(
        StructureError, match="cannot walk model: it is nested deeper than 1000 levels"
    ):
        setup(Descent(), deep)
    loop: list[Any] = [arr(1)]
    loop.append(loop)
    with pytest.raises(StructureError, match="or contains itself"):
        setup(Descent(), loop)
    with pytest.raises(StructureError, match="cannot walk grads"):
        once(Descent(), [arr(1), arr(2)], loop)


def test_ten_thousand_leaves() -> None:
    model = [{"w": np.ones(1, np.float32), "b": [np.zeros(2, np.float32)]} for _ in range(5000)]
    grads = [{"w": np.ones(1, np.float32), "b": None} for _ in range(5000)]
    state = setup(Descent(0.5), model)
    update_(state, model, grads)
    assert all(part["w"] == 0.5 for part in model)
    assert not any(np.any(part["b"][0]) for part in model)
