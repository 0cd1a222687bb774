"""What can be counted: arrays, programs, buffers, and what is still alive."""

from __future__ import annotations

import gc
import importlib
import sys
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Adam, Momentum, adjust, adjust_, freeze, setup, thaw, update, update_
from optimisers.api.quick import quick_step
from optimisers.state.plan import located
from optimisers.state.programs import begins_of

from .compiles import compiles
from .kernels import jobs, kernels

LIBRARIES = pytest.mark.parametrize("lib", [jnp, np], ids=["jax", "numpy"])


def many(n: int, lib: Any = jnp) -> dict[str, Any]:
    """Return small parameters of alternating shapes, as weights and biases are."""
    shapes = [(3 + i % 4, 5) if i % 2 else (7,) for i in range(n)]
    return {f"p{i:04}": lib.ones(shape, np.float32) for i, shape in enumerate(shapes)}


def like(model: Any) -> Any:
    return {
        name: np.asarray(x) * 0 + 1 if isinstance(x, np.ndarray) else x * 0 + 1
        for name, x in model.items()
    }


@LIBRARIES
def test_arrays_hardly_grow_with_the_number_of_parameters(lib: Any) -> None:
    assert len(jax.tree.leaves(setup(Adam(), many(150, lib)))) < 40
    assert len(jax.tree.leaves(setup(Adam(), many(1000, lib)))) < 250


def test_packs_of_one_kind_are_set_up_and_stepped_by_one_program() -> None:
    model = {f"p{i:03}": jnp.ones((7,) if i % 2 else (3, 6)) for i in range(400)}
    g = like(model)
    with compiles() as count:
        state = setup(Momentum(), model)
        assert count() <= 2  # the first state, and JAX's own copy of the table of numbers
        update_(state, model, g)
        assert count() <= 4


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("order", ["in turn", "mixed"])
def test_the_cuts_of_a_pack_are_few_kernels(order: str, traced: bool) -> None:
    """Shapes in a regular order lie at few distances; in another order more places are given."""
    mixed = np.random.default_rng(0).integers(0, 4, 100)
    shapes = [(7,), (3, 6), (40,), (90,)]
    chosen = [i % 2 for i in range(100)] if order == "in turn" else mixed
    model = {f"p{i:03}": jnp.ones(shapes[kind]) for i, kind in enumerate(chosen)}
    state = setup(Momentum(), model)
    (job,) = jobs(state, model, like(model))
    assert len(job.members) == 100
    assert len(begins_of(job.spec)) == (13 if order == "in turn" else 50)
    found = kernels(state, model, like(model), traced)
    cuts = {body for body in found if "dynamic-slice(" in body}
    assert 0 < len(cuts) <= 20  # of 100


@pytest.mark.parametrize("way", [update, update_])
def test_the_quick_way_and_the_general_one_give_the_same_numbers(
    way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(quick: Any) -> tuple[Any, Any]:
        monkeypatch.setattr(importlib.import_module("optimisers.api.update"), "quick_step", quick)
        model: Any = {"small": many(30), "n": 3, "big": [jnp.ones((130, 130))]}
        state = setup(Momentum(0.01), model)
        for step in range(4):
            g = {"small": like(model["small"]), "n": None, "big": [model["big"][0] * step + 1]}
            state, model = way(state, model, g)
        return state, model

    taken: list[bool] = []

    def watched(*args: Any) -> Any:
        result = quick_step(*args)
        taken.append(result is not None)
        return result

    state, model = trained(watched)
    other, twin = trained(lambda *args: None)
    assert taken == [way is update, True, True, True]  # update_ looks for shared memory once
    jax.tree.map(np.testing.assert_array_equal, model, twin)
    jax.tree.map(np.testing.assert_array_equal, state, other)


@pytest.mark.parametrize("shape", [(3,), (200, 200)], ids=["pack", "bundle"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_state_that_nobody_shares_gives_its_memory(shape: Any, shared: bool) -> None:
    def pointers(state: Any) -> set[int]:
        return {a.unsafe_buffer_pointer() for a in jax.tree.leaves(state)}

    model = {"w": jnp.ones(shape) * 1}
    state = setup(Adam(), model)
    for _ in range(3):  # the general way, then the quick one
        before = pointers(state)
        held = jax.tree.leaves(state) if shared else []
        state, model = update_(state, model, {"w": jnp.ones(shape)})
        new = len(pointers(state) - before)
        assert new == (len(held) - 1 if shared else 0)  # the table of numbers stays in any case
        assert not any(a.is_deleted() for a in held)


@LIBRARIES
def test_random_gaps_compile_nothing(lib: Any) -> None:
    rng = np.random.default_rng(0)
    model = many(150, lib)
    g, state = like(model), setup(Adam(0.01), model)
    state, model = update_(state, model, g)
    state, model = update_(state, model, dict.fromkeys(g))
    state, model = update_(state, model, dict(g, p0000=None, p0050=None, p0100=None, p0149=None))
    with compiles() as count:
        for _ in range(60):
            gaps = {name: None if rng.random() < rng.random() else x for name, x in g.items()}
            state, model = update_(state, model, gaps)
        assert count() == 0


def test_gaps_in_a_bundle_compile_one_program_for_each_shape() -> None:
    rng = np.random.default_rng(0)
    model = {str(i): jnp.ones((130, 130 + i % 2)) for i in range(12)}
    g, state = like(model), setup(Momentum(0.01), model)
    state, model = update_(state, model, g)
    with compiles() as count:
        for _ in range(20):
            gaps = {name: None if rng.random() < 0.5 else x for name, x in g.items()}
            state, model = update_(state, model, gaps)
        assert count() <= 2


def learning_rates() -> Any:
    kinds = [float, np.float32, np.float64, lambda x: jnp.float32(x), lambda x: int(x > 0.05)]
    return [kinds[i % 5](0.001 * i) for i in range(100)]


@LIBRARIES
def test_a_hundred_learning_rates_compile_nothing(lib: Any) -> None:
    model = many(60, lib)
    g, state = like(model), setup(Adam(0.01), model)
    state, model = update_(state, model, g)
    state, model = update_(adjust(state, 0.5), model, g)
    with compiles() as count:
        for i, eta in enumerate(learning_rates()):
            state = adjust(state, eta) if i % 2 else adjust_(state, eta)
            state, model = update_(state, model, g)
        assert count() == 0


def test_a_hundred_learning_rates_trace_a_users_program_once() -> None:
    model, traces = many(60), 0

    @jax.jit
    def step(state: Any, model: Any, g: Any) -> Any:
        nonlocal traces
        traces += 1
        return update(state, model, g)

    g, state = like(model), setup(Adam(0.01), model)
    for eta in learning_rates():
        state, model = step(adjust(state, eta), model, g)
    assert traces == 1
    for i in range(10):
        state = thaw(state, "p00*") if i % 2 else freeze(state, "p00*")
        state, model = step(state, model, g)
    assert traces <= 3


def test_freezing_and_thawing_compile_at_most_twice() -> None:
    model = many(60)
    g, state = like(model), setup(Adam(0.01), model)
    state, model = update_(state, model, g)
    with compiles() as count:
        for i in range(10):
            state = thaw(state, "p00*") if i % 2 else freeze(state, "p00*")
            state, model = update_(state, model, g)
        assert count() <= 2 * 2  # of each of the two packs


def buffers() -> tuple[int, int]:
    gc.collect()
    alive = jax.live_arrays()
    return len(alive), sum(x.nbytes for x in alive)


@LIBRARIES
@pytest.mark.parametrize("step", [update, update_])
def test_buffers_do_not_grow(lib: Any, step: Any) -> None:
    w = lib.ones((20, 3), np.float32)
    model = {**many(20, lib), "tied": w, "twin": w, "large": lib.ones((200, 200), np.float32)}
    g, state = like(model), setup(Adam(0.01), model)
    for _ in range(3):
        state, model = step(state, model, g)
    before = buffers()
    for i in range(1000 if step is update_ else 100):
        state, model = step(state, model, dict(g, p0003=None) if i % 3 else g)
    assert buffers() == before


def test_memory_is_given_to_the_results() -> None:
    model = {**many(30), "large": jnp.ones((200, 200))}
    g, state = like(model), setup(Adam(0.01), model)
    old = [*model.values(), *(x for x in jax.tree.leaves(state) if x.size > 100)]
    state, model = update_(state, model, g)
    assert all(x.is_deleted() for x in old[:31])
    assert not any(x.is_deleted() for x in jax.tree.leaves((state, model, g)))
    moments = [id(x) for x in jax.tree.leaves(state)]
    state, model = update_(state, model, g)
    assert not any(x.is_deleted() for x in jax.tree.leaves((state, model, g)))
    assert len(moments) == len(jax.tree.leaves(state))


def test_what_somebody_else_needs_is_not_given_away() -> None:
    x, y = jnp.ones(3), jnp.ones((200, 200))
    twin = jax.device_put(y, y.sharding)  # another object with the same buffer
    model = {"x": x, "y": y, "twin": twin, "static": (y,)}
    untied = setup({"static/**": None, "twin": Adam(0.1), "**": Momentum(0.5)}, model, ties=())
    new = update_(untied, dict(model), {"x": x, "y": y, "twin": y, "static": None})[1]
    assert not any(array.is_deleted() for array in (x, y, twin))
    assert np.array_equal(new["x"], np.full(3, 0.5))
    assert np.array_equal(new["y"], np.full((200, 200), 0.5))


@LIBRARIES
@pytest.mark.parametrize("step", [update, update_])
def test_nothing_is_kept_alive(lib: Any, step: Any) -> None:
    w = lib.ones((200, 200), np.float32)
    model = {**many(30, lib), "large": w, "tied": [w]}
    g = dict(like({name: x for name, x in model.items() if name != "tied"}), tied=None)
    state, new = step(setup(Adam(), model), model, g)
    held = [x for x in jax.tree.leaves((model, new, g)) if lib is np or not x.is_deleted()]
    refs = [weakref.ref(x) for x in held]
    refs += [weakref.ref(x) for x in jax.tree.leaves(state) if not isinstance(x, np.ndarray)]
    refs.append(weakref.ref(state))
    del state, model, new, g, w, held
    gc.collect()
    assert not [ref() for ref in refs if ref() is not None]


def test_layouts_die_with_the_last_state() -> None:
    state = setup(Adam(), {"a name that no other test has": np.ones(3)})
    layout = weakref.ref(state._box.layout)
    assert layout() is not None
    del state
    gc.collect()
    assert layout() is None


def test_a_planned_walk_of_ten_thousand_leaves_stays_in_c() -> None:
    for leaf in (np.ones(1, np.float32), {"in": jnp.ones(1)}):
        model = [{"w": leaf, "n": i} for i in range(5000)]
        layout, calls = setup(Momentum(), model)._box.layout, 0
        located(layout, (), model, [model])

        def watch(frame: Any, event: str, arg: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(watch)
        try:
            located(layout, (), model, [model])
        finally:
            sys.setprofile(None)
        assert calls < 100
