"""The published table of Optax's transformations, read from the docs, and each of its rows run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import optimisers
from optimisers import from_optax
from optimisers.arrays.numbers import precision
from optimisers.errors import RuleTypeError

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "optax.md"
ROWS = [
    [cell.strip(" `") for cell in line.strip().strip("|").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `optax.")
]
WORKING = [row for row in ROWS if row[1] != "refused"]
REFUSED = [row for row in ROWS if row[1] == "refused"]
SHAPES = {"w": (4, 3), "b": (3,)}
# Compiled with care for the time that it takes, as each program here runs once.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


def evaluated(call: str) -> Any:
    return eval(call, {"optax": optax, "jax": jax, "jnp": jnp})


def transformations(module: ModuleType) -> Iterator[str]:
    """Yield the names of functions and classes in a module that make transformations."""
    for name, value in vars(module).items():
        made = inspect.isclass(value) and hasattr(value, "gradient_transformation")
        value = getattr(value, "func", value)  # of a functools.partial
        if inspect.isfunction(value):
            returned = getattr(value, "__annotations__", {}).get("return", None)
            # Some do not say what they return; what they make stands in their source.
            text = inspect.getsource(value) if returned is None else str(returned)
            made = "GradientTransformation" in text
        if made and not name.startswith("_"):
            yield f"{module.__name__}.{name}"


@pytest.mark.parametrize("module", [optax, optax.contrib], ids=lambda module: module.__name__)
def test_every_transformation_of_optax_stands_in_the_table(module: ModuleType) -> None:
    found = set(transformations(module))
    table = {re.match(r"[\w.]+", row[0])[0] for row in ROWS}  # type: ignore[index]
    assert len(found) > 30
    assert found - table == set()


def test_the_table_has_no_row_twice_and_no_unknown_name() -> None:
    calls = [row[0] for row in ROWS]
    assert len(set(calls)) == len(calls)
    known = set(transformations(optax)) | set(transformations(optax.contrib))
    assert {re.match(r"[\w.]+", call)[0] for call in calls} - known == set()  # type: ignore[index]


def both(rule: Any, tx: Any, model: Any, grads: Any) -> tuple[Any, Any]:
    """Return the parameters after a step for each of the gradients, by the rule and by Optax."""

    def body(carry: Any, g: Any) -> tuple[Any, None]:
        state, model, opt_state, params = carry
        state, model = optimisers.update(state, model, g)
        updates, opt_state = tx.update(g, opt_state, params)
        return (state, model, opt_state, optax.apply_updates(params, updates)), None

    first = optimisers.setup(rule, model), model, tx.init(model), model
    (_, model, _, params), _ = jax.lax.scan(body, first, grads)
    return model, params


@pytest.fixture(scope="module")
def quick() -> dict[str, Any]:
    try:
        jax.jit(jnp.sin, compiler_options=QUICK)(1.0)
    except Exception:
        return {}  # a compiler that knows other options takes longer
    return QUICK


@pytest.mark.peers
@pytest.mark.parametrize(("call", "way", "_"), WORKING, ids=[row[0] for row in WORKING])
def test_parameters_move_by_the_numbers_of_optax(
    call: str, way: str, _: str, quick: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    model = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    grads = {name: rng.normal(size=(3, *shape)) for name, shape in SHAPES.items()}
    tx = evaluated(call)
    rule: Any = from_optax(tx)
    with precision(True):
        here, there = jax.jit(lambda m, g: both(rule, tx, m, g), compiler_options=quick)(
            *jax.tree.map(jnp.asarray, (model, grads))
        )
    for name in SHAPES:
        np.testing.assert_allclose(here[name], there[name], rtol=1e-12, atol=1e-14)
    shape = SHAPES["w"]
    reduces = rule.tx.alike(shape, np.float64).reduces
    packs = all(rule.packs(shape, np.float64) for shape in SHAPES.values())
    assert way == ("each element" if packs else "sums over all" if reduces else "each parameter")


@pytest.mark.peers
@pytest.mark.parametrize(("call", "_", "why"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_a_rule_says_why(call: str, _: str, why: str) -> None:
    with pytest.raises(RuleTypeError, match="cannot make a rule of") as caught:
        from_optax(evaluated(call))
    assert why
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
