"""The published table of equivalent calls, read from the docs and run in the real libraries."""

from __future__ import annotations

import importlib
import os
import re
import types
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optimisers
from optimisers.arrays.numbers import precision

from .. import keras_formulas
from ..cases import CASES, make, reference

PAGE = Path(__file__).parents[2] / "docs" / "rules" / "equivalents.md"
NONE = "—"


def table() -> list[list[str]]:
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    return [[cell.strip(" `") for cell in row.strip("|").split(" | ")] for row in rows]


def calls(column: int) -> Any:
    """Return the mark that runs a test for each row that has something in a column."""
    rows = [(row[0], row[column]) for row in table()]
    chosen = [(here, there) for here, there in rows if there != NONE]
    return pytest.mark.parametrize(("here", "there"), chosen, ids=[there for _, there in chosen])


def parts(x: Any) -> list[Any]:
    """Return the reference's numbers as two arrays, so that norms per array and over all differ."""
    return [x[:4], x[4:]]


def ours(here: str) -> Any:
    """Return the parameters after each of the reference's steps, all of them in a row."""
    data, found = reference(), []
    model = parts(np.array(data["x0"]))
    state = optimisers.setup(make(here), model)
    for g in np.array(data["gradients"]):
        state, model = optimisers.update(state, model, parts(g))
        found.append(np.concatenate(model))
    return np.array(found)


# What a peer adds: 1e-6 to the norm; a mean taken with a float32 count.
LOOSE = {"clip_grad_norm_": 1e-5, "MultiSteps": 1e-9}


def agrees(here: str, there: str, theirs: Any, tolerance: float = 1e-12) -> None:
    tolerance = max([tolerance, *(loose for name, loose in LOOSE.items() if name in there)])
    np.testing.assert_allclose(theirs, ours(here), rtol=tolerance, atol=tolerance)


@pytest.mark.peers
@calls(1)
def test_optax_agrees(here: str, there: str) -> None:
    data, found = reference(), []
    with precision(True):
        peer = eval(there, {"optax": optax})
        params = [jnp.asarray(x) for x in parts(np.array(data["x0"]))]
        state = _later(peer.init(params))
        step = jax.jit(peer.update)
        for g in np.array(data["gradients"]):
            updates, state = step([jnp.asarray(part) for part in parts(g)], state, params)
            params = optax.apply_updates(params, updates)
            found.append(np.concatenate(params))
    agrees(here, there, found)


def _later(state: Any) -> Any:
    """Return a state of optimistic Adam as after a step, which ours also starts from."""
    if hasattr(state, "is_initial_step"):
        return state._replace(is_initial_step=jnp.array(False))
    return tuple(map(_later, state)) if type(state) is tuple else state


@calls(2)
def test_torch_agrees(here: str, there: str, torch: ModuleType) -> None:
    data, found = reference(), []
    w = [torch.tensor(x, requires_grad=True) for x in parts(np.array(data["x0"]))]
    *before, optimiser = there.split("`, `")
    peer = eval(optimiser, {"torch": torch, "w": w})
    for g in np.array(data["gradients"]):
        for p, part in zip(w, parts(g), strict=True):
            p.grad = torch.tensor(part)
        for call in before:
            eval(call, {"torch": torch, "w": w})
        peer.step()
        found.append(np.concatenate([p.detach().numpy() for p in w]))
    agrees(here, there, found)


def run_formulas(there: str) -> list[Any]:
    data, found = reference(), []
    peer = eval(there, {"keras": types.SimpleNamespace(optimizers=keras_formulas)})
    xs = parts(np.array(data["x0"]))
    for g in np.array(data["gradients"]):
        xs = peer.apply(parts(g), xs)
        found.append(np.concatenate(xs))
    return found


def run_keras(there: str) -> list[Any]:
    os.environ.setdefault("KERAS_BACKEND", "jax")  # read when Keras is imported, and then no more
    keras, data, found = importlib.import_module("keras"), reference(), []
    with precision(True):
        keras.config.set_floatx("float64")
        peer = eval(there, {"keras": keras})
        xs = [keras.Variable(x, dtype="float64") for x in parts(np.array(data["x0"]))]
        for g in np.array(data["gradients"]):
            peer.apply([keras.ops.convert_to_tensor(part) for part in parts(g)], xs)
            found.append(np.concatenate([keras.ops.convert_to_numpy(x) for x in xs]))
    return found


# Keras keeps its learning rate, and with it the last digits, in float32.
KERAS = [
    (run_formulas, 1e-12),
    pytest.param(run_keras, 1e-6, marks=pytest.mark.needs("keras")),
]


@pytest.mark.peers
@pytest.mark.parametrize(("run", "tolerance"), KERAS)
@calls(3)
def test_keras_agrees(
    here: str, there: str, run: Callable[[str], list[Any]], tolerance: float
) -> None:
    agrees(here, there, run(there), tolerance)


def test_every_rule_stands_in_the_table() -> None:
    text = " ".join(row[0] for row in table())
    missing = {type(case.rule).__name__ for case in CASES} - set(re.findall(r"\w+(?=\()", text))
    assert missing == set()


def test_what_has_no_equivalent_is_explained() -> None:
    notes = PAGE.read_text(encoding="utf-8").partition("## Notes")[2]
    for row in table():
        if NONE in row[1:3]:
            names = re.findall(r"\w+(?=\()", row[0])
            assert any(re.search(rf"\b{name}\b", notes) for name in names), row[0]
