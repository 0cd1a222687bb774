"""Each library's gradients, as they come, train its own model as plain jax.grad does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optimisers import setup, update, update_

from . import table
from .library import WAYS, Case, reached, values
from .problem import RULE, SHAPES, STEPS, data, first_gradients, numbers, trained

pytestmark = pytest.mark.peers
PARAMETERS = [
    pytest.param(row, id=f"{row.file}{row.case}", marks=[pytest.mark.needs(*row.needs)])
    for row in table.ROWS
]
FOUND: dict[str, tuple[str, ...]] = {}
# One unit in the last place of a 16-bit number near one; and rounding of twenty float32 steps.
WITHIN = {"narrow": 1e-3, "w": 1e-5, "b": 1e-5, "again": 1e-5, "unused": 0.0}


def run(case: Case, way: str, step: Any) -> tuple[bool, dict[str, Any], dict[str, Any]]:
    """Train a new model; return whether it is the same object, and its parameters' objects.

    The latter before and after the last step.
    """
    model = start = case.make(numbers())
    state, before = setup(RULE, model), {}
    others = {name: reached(model, path) for name, path in case.others.items()}
    for _ in range(STEPS):
        grads = WAYS[way](case, state, model, *data())
        before = case.parameters(model)
        state, model = step(state, model, *grads, tied=case.tied)
    left = {name: reached(model, path) for name, path in case.others.items()}
    assert values(left["count"]).tolist() == [0, 1, 2]
    assert left.get("act") is others.get("act")
    return model is start, before, case.parameters(model)


def way_of(case: Case) -> str:
    """Return how an integer array and a function in the model reach the library."""
    for way, ask in WAYS.items():
        start = case.make(numbers())
        try:
            ask(case, setup(RULE, start), start, *data())
        except Exception:
            continue  # whatever it is that the library refuses it with
        return way
    raise AssertionError("refused in each way")


@pytest.mark.parametrize("row", PARAMETERS)
def test_training_is_that_of_plain_jax_grad(row: table.Row) -> None:
    case = row.load()
    start, way = case.make(numbers()), way_of(case)
    grads = WAYS[way](case, setup(RULE, start), start, *data())
    found = case.found(start, grads)
    check_gradients(found)

    held = {name: values(x) for name, x in case.parameters(start).items()}
    same, _, pure = run(case, way, update)
    assert not same
    same, before, after = run(case, way, update_)
    expected, furthest = trained(), 0.0
    for name, x in after.items():
        got, wanted = values(x), expected["w" if name == "again" else name]
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert np.array_equal(got, values(pure[name])), name
        assert name == "unused" or not np.allclose(got, held[name], atol=0.1), "nothing moved"
        error = float(np.max(np.abs(got.astype(float) - wanted.astype(float))))
        assert error <= WITHIN[name], (name, error)
        furthest = max(furthest, error)
    assert all(np.array_equal(values(x), held[n]) for n, x in case.parameters(start).items())
    if "again" in after:
        assert values(after["again"]).tolist() == values(after["w"]).tolist()
    FOUND[row.asked] = (
        row.asked, f"{row.package} {row.version}", kind(before["w"]),
        type(grads[0]).__name__ if grads else "`.grad`", ties(found, case), unused(found),
        written(same, before, after), ("" if "act" in case.others else "integers only, ") + way,
        within(),
    )  # fmt: skip


def within() -> str:
    """Say how far a parameter may be from that of plain jax.grad."""
    narrow, rest = (f"{WITHIN[name]:.0e}".replace("e-0", "e-") for name in ("narrow", "w"))
    return f"{narrow} (16 bits), {rest}"


def kind(x: Any) -> str:
    """Name the class of a parameter's object, and the package that it is from."""
    return f"`{type(x).__module__.partition('.')[0]}` {type(x).__name__}".replace("Impl", "")


def check_gradients(found: dict[str, Any]) -> None:
    """Compare a library's first gradients with those of plain jax.grad."""
    wanted = first_gradients()
    for name in ("b", "narrow"):
        assert np.allclose(found[name], wanted[name], rtol=2e-3 if name == "narrow" else 1e-5)


def ties(found: dict[str, Any], case: Case) -> str:
    """Say what a library gives for a parameter that stands at two places."""
    wanted = first_gradients()
    first, second = wanted["w"], wanted["again"]

    def near(a: Any, b: Any) -> bool:
        return not isinstance(a, str) and np.allclose(a, b, rtol=1e-5, atol=1e-6)

    w, again = found["w"], found.get("again")
    if near(w, first) and near(again, second):
        return "the part of each"
    known = [g for g in (w, again) if g is not None and not isinstance(g, str)]
    assert all(near(g, first + second) for g in known)
    assert known
    if again is None:
        return "one place"
    if len(known) == 1:
        return f"the total at one, {w if isinstance(w, str) else again} at the other"
    return 'the total twice: `tied="total"`' if case.tied == "total" else "the total twice"


def unused(found: dict[str, Any]) -> str:
    """Say what a library gives where the loss does not look."""
    g = found["unused"]
    assert isinstance(g, str) or not g.any()
    return g if isinstance(g, str) else "zeros"


def written(same: bool, before: dict[str, Any], after: dict[str, Any]) -> str:
    """Say which objects of the caller's `update_` has written."""
    kept = [after[name] is before[name] for name in SHAPES if name != "unused"]
    assert all(kept) or not any(kept)
    if all(kept):
        return "the parameters"
    return "the containers" if same else "nothing: a new model"


def test_the_table_in_the_docs_is_what_was_found() -> None:
    """Compare all but versions; where a row differs, write it, so that it can be committed."""
    shown = table.committed()
    wrong = {
        name: row
        for name, row in FOUND.items()
        if name not in shown or shown[name][:1] + shown[name][2:] != row[:1] + row[2:]
    }
    if wrong:
        table.write(wrong)
    assert not wrong, f"the rows of {sorted(wrong)} were out of date; the page is written: commit"
    assert set(shown) == {row.asked for row in table.ROWS}
