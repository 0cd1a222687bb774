"""Several threads at once, on different states, taking turns as often as they can."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optimisers import Adam, Momentum, adjust, setup, update, update_


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Let threads take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], Any], threads: int = 6) -> list[Any]:
    """Run `work(i)` in threads that start at one moment; raise what they raise."""
    results: list[Any] = [None] * threads
    errors: list[BaseException] = []
    barrier = threading.Barrier(threads)

    def run(i: int) -> None:
        try:
            barrier.wait()
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return results


def model(i: int) -> Any:
    x = jnp.full((3, 4), float(i))
    return {
        "jax": x, "tied": x, "numpy": np.full(5, float(i)),
        "large": np.full((130, 130), i, np.float32),
    }  # fmt: skip


def trained(i: int, steps: int = 15) -> Any:
    params = model(i)
    state = setup(Momentum(0.5 ** (i % 3), 0.5), params)
    for n in range(steps):
        g = {name: np.full(x.shape, n % 4, np.float32) for name, x in params.items()}
        state, params = (update_ if n % 3 else update)(
            state, params, dict(g, jax=None) if n % 2 else g
        )
    return params


def test_steps_on_different_states_do_not_disturb_each_other() -> None:
    expected = [trained(i) for i in range(6)]
    for found, wanted in zip(together(trained), expected, strict=True):
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_wide_steps_do_not_widen_the_steps_of_others() -> None:
    def work(i: int) -> Any:
        x = np.ones(3) if i % 2 else np.ones(3, np.float32)
        state = setup(Adam(0.1), x)
        for _ in range(10):
            state, x = update(state, x, np.ones(3))
            assert jnp.ones(1).dtype == np.float32
        return x.dtype, jax.tree.leaves(state.state)[0].dtype

    wide, narrow = (np.dtype("float64"),) * 2, (np.dtype("float32"),) * 2
    assert together(work) == [narrow, wide] * 3


def test_classes_are_bridged_once_whoever_sees_them_first() -> None:
    for _ in range(15):

        @jax.tree_util.register_dataclass
        @dataclass
        class New:
            x: Any

        def work(i: int, cls: Any = New) -> Any:
            tree = [cls(np.full(2, float(i))) for _ in range(20)]
            return update_(setup(Momentum(0.5), tree), tree, tree)[1][7].x[0]

        assert together(work) == [0.5 * i for i in range(6)]


def test_one_state_may_be_read_by_all() -> None:
    params = model(1)
    state = setup(Momentum(0.5), params)
    g = {name: np.ones(x.shape, np.float32) for name, x in params.items()}

    def work(i: int) -> Any:
        mine, new = adjust(state, 0.25 * i), params
        for _ in range(5):
            mine, new = update(mine, new, g)
        return float(new["numpy"][0])

    one = [float(x) for x in together(work)]
    assert one == [work(i) for i in range(6)]
    assert np.array_equal(params["numpy"], np.ones(5))
