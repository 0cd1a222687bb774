"""Small arrays of NumPy and torch, copied many at once: as the general way does it.

The first `update_` of a state goes the general way, which looks at each array; later ones need not.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from optimisers import (
    Adam,
    ClipGlobalNorm,
    Descent,
    Momentum,
    OptimiserChain,
    Rule,
    WeightDecay,
    adjust_,
    freeze_,
    setup,
    thaw_,
    update,
    update_,
)
from optimisers.errors import AliasError, ShapeError, StateError

QUICK = importlib.import_module("optimisers.api.quick")
RULES = [Descent(0.1), Adam(0.1), OptimiserChain(ClipGlobalNorm(0.5), Momentum(0.1))]
MAKERS = {
    "numpy": lambda torch, x: np.array(x),
    "numpy, float16": lambda torch, x: np.array(x, np.float16),
    "torch": lambda torch, x: torch.tensor(x),
    "torch, bfloat16": lambda torch, x: torch.tensor(x).bfloat16(),
    "torch, Parameter": lambda torch, x: torch.nn.Parameter(torch.tensor(x)),
}


def drawn(seed: int, layers: int = 3) -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"w": (5, 4), "b": (17,), "scale": (), "none": (0, 3)}
    return {
        f"l{i}": {k: np.asarray(rng.normal(size=s), np.float32) for k, s in shapes.items()}
        for i in range(layers)
    }


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list to which each staged step adds whether it was one."""
    found: list[bool] = []
    step = QUICK.staged_step

    def noted(*args: Any) -> bool:
        found.append(step(*args))
        return found[-1]

    monkeypatch.setattr(QUICK, "staged_step", noted)
    return found


def read(x: Any) -> Any:
    return x.detach().float().numpy() if hasattr(x, "detach") else np.asarray(x, np.float32)


def same(a: Any, b: Any) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(read(x), read(y))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("kind", MAKERS)
def test_it_is_the_general_way(
    torch: ModuleType, rule: Rule, kind: str, staged: list[bool]
) -> None:
    model, other = (jax.tree.map(lambda x: MAKERS[kind](torch, x), drawn(0)) for _ in range(2))
    state, pure = setup(rule, model), setup(rule, other)
    kept = jax.tree.leaves(model)
    for seed in range(1, 5):
        grads = jax.tree.map(lambda x: MAKERS[kind](torch, x), drawn(seed))
        versions = [getattr(x, "_version", 0) for x in kept]
        state, new = update_(state, model, grads)
        pure, other = update(pure, other, grads)
        assert new is model
        assert all(x is y for x, y in zip(jax.tree.leaves(new), kept, strict=True))
        if "torch" in kind:
            moved = [x._version > v for x, v in zip(kept, versions, strict=True)]
            assert all(moved), "autograd must learn that a tensor was written"
    assert staged == [True] * 3
    same(model, other)
    same(state["l1"]["w"].state, pure["l1"]["w"].state)


def ready(make: Callable[[Any], Any], rule: Rule = RULES[1]) -> tuple[Any, Any, Any]:
    model, grads = jax.tree.map(make, drawn(0)), jax.tree.map(make, drawn(1))
    state = setup(rule, model)
    for _ in range(2):
        state, model = update_(state, model, grads)
    return state, model, grads


def test_a_model_of_tuples_is_given_back_itself() -> None:
    model = (np.ones(3), [np.ones(2)])
    state = setup(Descent(0.5), model)
    for _ in range(3):
        state, new = update_(state, model, (np.ones(3), [np.ones(2)]))
        assert new is model
    np.testing.assert_array_equal(model[0], -0.5)


@pytest.mark.parametrize("kind", ["float64", "none", "sparse", "strided", "subclass", "meta"])
def test_other_gradients_are_left_to_the_general_way(
    torch: ModuleType, kind: str, staged: list[bool]
) -> None:
    state, model, grads = ready(torch.tensor)
    twin, other = copy.deepcopy((state, model))
    g = grads["l0"]["w"]
    grads["l0"]["w"] = {
        "float64": g.double,
        "none": lambda: None,
        "sparse": g.to_sparse,
        "strided": lambda: g.t().contiguous().t(),
        "subclass": lambda: g.as_subclass(type("Mine", (torch.Tensor,), {})),
        "meta": lambda: g.to("meta"),
    }[kind]()
    staged.clear()
    if kind == "meta":
        before = copy.deepcopy(model)
        with pytest.raises(ValueError, match="meta device"):
            update_(state, model, grads)
        same(model, before)
        assert staged == [False]
        return
    update_(state, model, grads)
    assert staged == [kind == "strided"]
    _, other = update(twin, other, grads)
    same(model, other)


def test_a_wrong_shape_is_refused_by_path() -> None:
    state, model, grads = ready(np.array)
    before = copy.deepcopy(model)
    with pytest.raises(ShapeError, match=r'model\["l2"\]\["b"\]'):
        update_(state, model, {**grads, "l2": {**grads["l2"], "b": np.ones((1, 17), np.float32)}})
    same(model, before)
    update_(state, model, grads)


def test_memory_that_was_exchanged_is_looked_at(torch: ModuleType, staged: list[bool]) -> None:
    """`.data` may be another tensor's: of another place, turned, or over a neighbour's memory."""
    state, model, grads = ready(lambda x: torch.nn.Parameter(torch.tensor(x)))
    twin, other = copy.deepcopy((state, model))
    for each in (model, other):
        each["l0"]["b"].data = torch.arange(17.0)
        each["l1"]["w"].data = torch.arange(20.0).reshape(4, 5).t()
    staged.clear()
    for _ in range(3):
        state, model = update_(state, model, grads)
        twin, other = update(twin, other, grads)
    same(model, other)
    assert staged == [False] * 3  # written through strides, one by one
    model["l1"]["w"].data = torch.ones(5, 4)
    for _ in range(2):
        update_(state, model, grads)
    assert staged[-1]
    memory = torch.ones(30)
    model["l0"]["b"].data, model["l1"]["b"].data = memory[:17], memory[5:22]
    with pytest.raises(AliasError):
        update_(state, model, grads)
    np.testing.assert_array_equal(memory.numpy(), 1)


def test_memory_that_overlaps_before_the_first_staged_step_is_refused(torch: ModuleType) -> None:
    model = jax.tree.map(lambda x: torch.nn.Parameter(torch.tensor(x)), drawn(0))
    grads = jax.tree.map(torch.tensor, drawn(1))
    state = setup(Adam(), model)
    update_(state, model, grads)
    memory = torch.ones(30)
    model["l0"]["b"].data, model["l1"]["b"].data = memory[:17], memory[5:22]
    with pytest.raises(AliasError):
        update_(state, model, grads)


@pytest.mark.parametrize("change", ["expanded", "negated"])
def test_memory_that_cannot_be_written_at_once_is_not(torch: ModuleType, change: str) -> None:
    """The same place, shape and dtype, but one element for many, or a sign still to come."""
    model = {k: torch.nn.Parameter(torch.ones(3, 1)) for k in "abc"}
    model["b"].data = torch.complex(torch.zeros(3, 1), torch.ones(3, 1)).imag.contiguous()
    grads = {k: torch.ones(3, 1) for k in "abc"}
    state = setup(Momentum(0.1), model)
    for _ in range(3):
        state, model = update_(state, model, grads)
    x = model["b"].data
    if change == "expanded":
        model["b"].data = x[:1].expand(3, 1)
    else:
        model["b"].data = torch._neg_view(x)
    twin, other = copy.deepcopy((state, model))
    for _ in range(2):
        state, model = update_(state, model, grads)
        twin, other = update(twin, other, grads)
    same(model, other)


def test_the_library_of_a_model_may_change(torch: ModuleType) -> None:
    """There and back, more than one step in each."""
    state, model, grads = ready(np.array)
    twin, other = copy.deepcopy((state, model))
    for make in (torch.tensor, lambda x: x.numpy()):
        model, grads, other = (jax.tree.map(make, tree) for tree in (model, grads, other))
        for _ in range(3):
            state, model = update_(state, model, grads)
            twin, other = update(twin, other, grads)
        same(model, other)


def test_a_state_that_was_given_away_is_named_before_another_unit_has_run() -> None:
    model = {"a": np.ones(3, np.float32), "b": np.ones(4, np.float16)}
    state = setup(Adam(), model)
    for _ in range(3):
        state, model = update_(state, model, model)
    before = copy.deepcopy(model)
    jax.tree.leaves(state)[-1].delete()
    gone = [a.is_deleted() for a in jax.tree.leaves(state)]
    with pytest.raises(StateError, match=r'the state of model\["b"\] was given away'):
        update_(state, model, model)
    same(model, before)
    assert [a.is_deleted() for a in jax.tree.leaves(state)] == gone


def test_an_array_that_became_read_only_is_not_written(staged: list[bool]) -> None:
    state, model, grads = ready(np.array)
    w = model["l0"]["w"]
    w.setflags(write=False)
    before = w.copy()
    state, model = update_(state, model, grads)
    assert staged[-1] is False
    np.testing.assert_array_equal(w, before)
    assert model["l0"]["w"] is not w


def test_rules_and_freezing_may_change_between_steps(staged: list[bool]) -> None:
    state, model, grads = ready(np.array)
    twin, other = copy.deepcopy((state, model))

    def both(change: Callable[[Any], Any], steps: int = 2) -> None:
        nonlocal state, twin, model, other
        change(state), change(twin)
        for _ in range(steps):
            state, model = update_(state, model, grads)
            twin, other = update(twin, other, grads)
        same(model, other)

    both(lambda s: adjust_(s, 0.7))
    both(lambda s: adjust_(s["l0"], OptimiserChain(WeightDecay(0.1), Adam(0.2))))
    both(lambda s: freeze_(s["l1"]))
    both(lambda s: thaw_(s["l1"]))
    assert staged[-1]


def test_a_gradient_may_be_a_parameter(torch: ModuleType) -> None:
    """All is read before anything is written."""
    state, model, grads = ready(torch.tensor)
    twin, other = copy.deepcopy((state, model))
    grads["l0"]["w"], grads["l1"]["w"] = model["l1"]["w"], model["l0"]["w"]
    update_(state, model, grads)
    grads["l0"]["w"], grads["l1"]["w"] = other["l1"]["w"], other["l0"]["w"]
    _, other = update(twin, other, grads)
    same(model, other)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_python_does_not_look_at_each_array(torch: ModuleType, kind: str) -> None:
    """The calls of Python functions in a step are the same for 12 and for 120 arrays."""

    def calls(layers: int) -> int:
        model, grads = (
            jax.tree.map(lambda x: MAKERS[kind](torch, x), drawn(seed, layers)) for seed in (0, 1)
        )
        state = setup(Adam(), model)
        for _ in range(3):
            update_(state, model, grads)
        count = 0

        def note(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        update_(state, model, grads)
        sys.setprofile(None)
        return count

    assert abs(calls(30) - calls(3)) < 20
