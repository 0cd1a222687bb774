"""Large arrays of host memory are read wherever they begin, and give the numbers of smaller ones.

What is large is made small here; the numbers of the general way are those with nothing large.
"""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from optimisers import (
    Adam,
    AdamW,
    ClipGlobalNorm,
    Descent,
    OptimiserChain,
    adjust_,
    freeze_,
    setup,
    update_,
)
from optimisers.rules.rule import Rule
from optimisers.state import large

from .compiles import compiles

SHAPES = [(90, 90), (7000,), (3, 50, 50)]  # larger than what goes into packs


def placed(values: Any, before: int) -> Any:
    """Return a copy that begins so many bytes after a line of the cache."""
    room = np.empty(values.nbytes + 2 * large.LINE, np.uint8)
    begin = -room.ctypes.data % large.LINE + before
    x = room[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    x[...] = values
    return x


def numbers(seed: int, dtype: Any, before: list[int]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    drawn = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    return {f"w{i}": placed(x, b) for i, (x, b) in enumerate(zip(drawn, before, strict=True))}


class Watch:
    """Note for each job whether it was one of large arrays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int = 1) -> None:
        self.found: list[bool] = []
        monkeypatch.setattr(large, "LARGE", size)
        monkeypatch.setattr(large, "_places", {})
        engine = __import__("optimisers.state.engine", fromlist=["large_step"])
        real = engine.large_step

        def noted(*args: Any) -> Any:
            done = real(*args)
            self.found.append(done is not None)
            return done

        monkeypatch.setattr(engine, "large_step", noted)


def both(
    rule: Rule, dtype: Any, model_at: list[int], grads_at: list[int], steps: int = 3
) -> tuple[Any, Any, list[bool]]:
    """Return model and state after some steps here, and in the general way."""
    found, seen = [], []
    for size in (1, 2**60):
        with pytest.MonkeyPatch.context() as patch:
            watch = Watch(patch, size)
            model = numbers(0, dtype, model_at)
            state = setup(rule, model)
            for t in range(steps):
                state, model = update_(state, model, numbers(t + 1, dtype, grads_at))
            found.append((model, state))
            seen.append(watch.found)
    assert not any(seen[1])
    return *found, seen[0]


def same(a: Any, b: Any) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@settings(max_examples=12)
@given(st.lists(st.sampled_from([0, 4, 16, 60]), min_size=6, max_size=6))
def test_memory_is_read_wherever_it_begins(before: list[int]) -> None:
    here, there, seen = both(Adam(0.1), np.float32, before[:3], before[3:])
    assert seen == [True] * len(seen) != []
    same(here, there)


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.complex64, np.complex128]
)
def test_every_dtype(dtype: Any) -> None:
    here, there, seen = both(Adam(0.1), dtype, [16, 0, 48], [0, 16, 32])
    assert seen == [True] * len(seen) != []
    same(here, there)


def test_a_rule_that_asks_about_the_whole_model() -> None:
    rule = OptimiserChain(ClipGlobalNorm(0.5), AdamW(0.1))
    here, there, seen = both(rule, np.float32, [16, 16, 16], [16, 16, 16])
    assert seen == [True] * len(seen) != []
    same(here, there)


def test_what_begins_between_elements_or_is_not_in_order_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(monkeypatch)
    model = {"w": np.ones((90, 90), np.float32)}
    state = setup(Descent(1.0), model)
    grads = np.arange(8100, dtype=np.float32).reshape(90, 90)
    update_(state, model, {"w": placed(grads, 2)})
    update_(state, model, {"w": np.asfortranarray(grads)})
    update_(state, model, {"w": np.array(grads)})
    assert watch.found == [False, False, True]
    np.testing.assert_array_equal(model["w"], 1 - 3 * grads)


def test_a_few_places_are_compiled_for_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    model = {"w": placed(np.ones((90, 90), np.float32), 0)}
    state = setup(Descent(1.0), model)
    grads = np.ones((90, 90), np.float32)
    for before in range(0, 24, 4):
        update_(state, model, {"w": placed(grads, before)})
    assert watch.found == [True] * large.MOST_PLACES + [False] * 2
    with compiles() as compiled:
        for before in range(0, 24, 4):
            update_(state, model, {"w": placed(grads, before)})
    assert compiled() == 0
    np.testing.assert_array_equal(model["w"], -11)


def test_nothing_else_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that share arrays, gradients, and what a caller keeps of the results."""
    watch = Watch(monkeypatch)
    model = numbers(0, np.float32, [16, 16, 16])
    grads = numbers(1, np.float32, [16, 16, 16])
    kept = copy.deepcopy(grads)
    state = setup(Adam(0.1), model)
    for _ in range(2):
        update_(state, model, grads)
    other, shared = copy.deepcopy(state), copy.copy(state)
    before = jax.tree.map(np.array, (other, model))
    results = [np.asarray(x) for some in state._box.kept.values() for x in some]
    values = copy.deepcopy(results)
    update_(state, model, grads)
    same(grads, kept)
    same(results, values)
    same((other, before[1]), before)
    same(shared, other)
    theirs = copy.deepcopy(before[1])
    update_(other, theirs, grads)
    same((other, theirs), (state, model))
    assert all(watch.found)


def test_none_freezing_and_new_rules_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def walked() -> Any:
        model = numbers(0, np.float32, [16, 0, 16])
        state = setup(Adam(0.1), model)
        for t in range(3):
            update_(state, model, numbers(t, np.float32, [16, 16, 0]))
        update_(state, model, {**numbers(4, np.float32, [0, 0, 0]), "w1": None})
        freeze_(state["w0"])
        update_(state, model, numbers(5, np.float32, [16, 16, 16]))
        adjust_(state, 0.2)
        update_(state, model, numbers(6, np.float32, [16, 16, 16]))
        return model, state

    watch = Watch(monkeypatch)
    mine = walked()
    assert any(watch.found)
    monkeypatch.setattr(large, "LARGE", 2**60)
    same(mine, walked())


def test_a_step_that_was_broken_off_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    Watch(monkeypatch)
    model, grads = (numbers(i, np.float32, [16, 16, 16]) for i in (0, 1))
    state = setup(Descent(0.5), model)
    for _ in range(2):
        update_(state, model, grads)
    before = copy.deepcopy(model)
    with monkeypatch.context() as patch:

        def interrupted(*args: Any) -> Any:
            raise KeyboardInterrupt

        patch.setattr(large, "concretely", interrupted)
        with pytest.raises(KeyboardInterrupt):
            update_(state, model, grads)
    same(model, before)
    update_(state, model, grads)
    same(model, {name: before[name] - np.float32(0.5) * grads[name] for name in model})


def test_a_gradient_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    model = {"w": placed(np.ones((90, 90), np.float32), 16)}
    state = setup(Descent(0.5), model)
    for _ in range(3):
        update_(state, model, {"w": jnp.ones((90, 90))})
    assert watch.found == [True] * 3
    np.testing.assert_array_equal(model["w"], -0.5)


def test_what_is_before_an_array_is_never_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX casts a gradient of 64 bits where its mode is 32; what is before it may overflow."""
    watch = Watch(monkeypatch)
    model = {"w": placed(np.ones((90, 90), np.float32), 16)}
    state = setup(Descent(0.5), model)
    room = np.full(8100 + 16, 1e300)
    begin = -room.ctypes.data % large.LINE // 8 + 2
    grads = room[begin : begin + 8100].reshape(90, 90)
    grads[...] = 1
    with np.errstate(all="raise"):
        for _ in range(3):
            update_(state, model, {"w": grads})
    assert watch.found == [False] * 3
    np.testing.assert_array_equal(model["w"], -0.5)
