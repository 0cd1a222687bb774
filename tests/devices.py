"""Checks on eight devices, run by `test_devices.py` in a process that has them.

Parameters lie over a mesh of one axis: cut by rows or by columns, or whole on every device. Each
check runs on both kinds of mesh: "auto", where the compiler decides, and "explicit", where
shardings stand in types.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import traceback
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from optimisers import (
    Adam,
    ClipGlobalNorm,
    Descent,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    Rule,
    adjust,
    freeze,
    setup,
    state_dict,
    update,
    update_,
)
from optimisers.api.update import prepared
from optimisers.rules.across import ALONE, Across
from optimisers.state.plan import flattened
from optimisers.state.programs import arguments, program_for

SPECS = {
    "rows": ((136, 128), P("data")),
    "columns": ((130, 136), P(None, "data")),
    "small": ((8, 6), P("data")),
    "twin": ((8, 6), P()),
    "bias": ((5,), P()),
    "large": ((130, 130), P()),
}
MOVES = re.compile(r" (all-gather|collective-permute|all-to-all|reduce-scatter)(?:-start)?\(")
REDUCES = re.compile(r" all-reduce(?:-start)?\(")
CLIPPED = OptimiserChain(ClipGlobalNorm(1.0), Adam(0.1))


@dataclass(frozen=True)
class OneSum(Rule):
    """Divide by the squared norm of the whole gradient: one question."""

    eta: float = 0.1
    elementwise: ClassVar[bool] = True

    def init(self, x: Any) -> Any:
        return None

    def apply(self, state: Any, x: Any, dx: Any, *, across: Across = ALONE) -> tuple[Any, Any]:
        return state, self.eta * dx / across.model(dx * dx, "sum")


def plain() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype("f") for name, (shape, _) in SPECS.items()}


def over(mesh: Mesh) -> dict[str, Any]:
    arrays = plain()
    return {
        name: jax.device_put(arrays[name], NamedSharding(mesh, spec))
        for name, (_, spec) in SPECS.items()
    }


def halves(model: Any) -> Any:
    return jax.tree.map(lambda x: 0.5 * x, model)


def assert_beside(state: Any, model: Any) -> None:
    """Insist that whatever is shaped like a parameter lies where the parameter does."""
    found = 0
    for name, (shape, spec) in SPECS.items():
        there = NamedSharding(model[name].sharding.mesh, spec)
        for a in (model[name], *jax.tree.leaves(state[name].state)):
            if a.shape == shape:
                assert a.sharding.is_equivalent_to(there, a.ndim), (name, a.sharding)
                found += 1
    assert found >= 2 * len(SPECS)


def setup_puts_state_beside_its_parameter(mesh: Mesh) -> None:
    model = over(mesh)
    assert_beside(setup(Momentum(), model), model)
    assert_beside(jax.jit(partial(setup, Adam()))(model), model)


def replaced_rules_keep_state_in_pieces(mesh: Mesh) -> None:
    model = over(mesh)
    state, model = update(setup(Momentum(0.1), model), model, halves(model))
    state = adjust(state, MixedPrecision(Momentum(0.1)))
    assert_beside(state, model)
    state, model = update(freeze(state, "rows"), model, {**halves(model), "small": None})
    assert_beside(state, model)
    assert state_dict(state)["columns/steps"] == 2


def entry_of(text: str) -> str:
    """Return what always runs; where the plain sum of squares is no good, branches do."""
    _, entry = text.split("\nENTRY ")
    return entry


def inside(state: Any, model: Any) -> str:
    """Return the compiled text of a step under jit."""
    text: str = jax.jit(update).lower(state, model, halves(model)).compile().as_text()
    return text


def outside(state: Any, model: Any) -> list[str]:
    """Return the compiled texts of the programs of an eager step."""
    found = flattened(state._box.layout, (), (model, halves(model)))
    jobs = prepared(state, *found, "parts", False).jobs
    programs = [program_for("step", job.spec, job.in_rows) for job in jobs]
    lowered = [program.lower(*arguments(job)) for program, job in zip(programs, jobs, strict=True)]
    return [each.compile().as_text() for each in lowered]


def a_step_moves_nothing(mesh: Mesh) -> None:
    model = over(mesh)
    states = [setup(CLIPPED, model), jax.jit(partial(setup, CLIPPED))(model)]
    for state in states:
        assert not MOVES.findall(inside(state, model))
        texts = outside(state, model)
        assert texts
        assert not any(map(MOVES.findall, texts))
        # The norm, where one program has all parameters; the programs of several are told it.
        assert sum(len(REDUCES.findall(entry_of(text))) for text in texts) == (len(texts) == 1)


def a_question_about_the_model_is_one_reduction(mesh: Mesh) -> None:
    model = over(mesh)
    for rule in (OneSum(), ClipGlobalNorm()):
        entry = entry_of(inside(setup(rule, model), model))
        assert len(REDUCES.findall(entry)) == 1, rule


def steps_are_those_of_one_device(mesh: Mesh) -> None:
    model, one = over(mesh), jax.tree.map(jnp.asarray, plain())
    state, alone = setup(CLIPPED, model), setup(CLIPPED, one)
    for step in (update, jax.jit(update), update_):
        state, model = step(state, model, halves(model))
        alone, one = step(alone, one, halves(one))
        assert_beside(state, model)
    # Sums over pieces round differently.
    for name, x in one.items():
        np.testing.assert_allclose(model[name], x, rtol=1e-5, atol=1e-6)


def memory_of_pieces_is_given_to_the_results(mesh: Mesh) -> None:
    model = over(mesh)
    g, state = halves(model), setup(Adam(0.01), model)

    def alive() -> tuple[int, int]:
        gc.collect()
        arrays = jax.live_arrays()
        return len(arrays), sum(x.nbytes for x in arrays)

    for step in range(103):
        old = list(model.values())
        state, model = update_(state, model, g)
        assert all(x.is_deleted() for x in old)
        del old
        if step == 2:
            before = alive()
    assert alive() == before
    assert_beside(state, model)


def whole_small_parameters_are_one_pack(mesh: Mesh) -> None:
    here = NamedSharding(mesh, P())
    model = {f"p{i}": jax.device_put(np.ones(3 + i, "f"), here) for i in range(10)}
    state = setup(Momentum(0.1, 0.5), model)
    assert len(state._box.layout.units) == 1
    for step in (update_, update, jax.jit(update)):
        state, model = step(state, model, model)
    leaves = [*model.values(), *state._box.arrays[0][1:]]
    assert all(len(x.devices()) == 8 and x.sharding.is_fully_replicated for x in leaves)
    one = {"p": np.ones(3, "f")}
    alone = setup(Momentum(0.1, 0.5), one)
    for _ in range(3):
        alone, one = update(alone, one, one)
    np.testing.assert_allclose(model["p0"], one["p"], rtol=1e-6)


def data_parallel_training_by_shard_map(mesh: Mesh) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(64, 3)).astype("f"), np.array([1, -2, 3], "f")
    y = x @ w
    model: Any = {"w": jnp.zeros(3), "b": jnp.zeros(())}

    def loss(model: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ model["w"] + model["b"] - y) ** 2)

    def step(state: Any, model: Any, x: Any, y: Any) -> Any:
        g = jax.grad(loss)(model, x, y)  # JAX adds up over the axis, as the model does not vary
        return update(state, model, jax.tree.map(lambda g: g / 8, g))

    specs = P(), P(), P("data"), P("data")
    parallel = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=P()))
    rule = OptimiserChain(ClipGlobalNorm(1.0), Descent(0.1))
    state, alone, one = setup(rule, model), setup(rule, model), model
    x_cut, y_cut = (jax.device_put(a, NamedSharding(mesh, P("data"))) for a in (x, y))
    for _ in range(5):
        state, model = parallel(state, model, x_cut, y_cut)
        alone, one = update(alone, one, jax.grad(loss)(one, x, y))
    mine = jax.shard_map(
        lambda x: setup(Momentum(), {"w": x})["w"].state, mesh=mesh, in_specs=P("data"),
        out_specs=P("data"),
    )  # fmt: skip
    assert mine(y_cut).shape == (64,)
    for name in model:
        np.testing.assert_allclose(model[name], one[name], rtol=1e-5, atol=1e-6)


CHECKS = {
    check.__name__: check
    for check in (
        setup_puts_state_beside_its_parameter,
        replaced_rules_keep_state_in_pieces,
        a_step_moves_nothing,
        a_question_about_the_model_is_one_reduction,
        steps_are_those_of_one_device,
        memory_of_pieces_is_given_to_the_results,
        whole_small_parameters_are_one_pack,
        data_parallel_training_by_shard_map,
    )
}
KINDS = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}


def main(only: str = "") -> None:
    """Run every check on every kind of mesh, and write what went wrong where."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    failures: dict[str, str] = {}
    for kind, axis in KINDS.items():
        mesh = jax.make_mesh((8,), ("data",), axis_types=(axis,))
        for name, check in CHECKS.items():
            if only in name:
                failures[f"{name}-{kind}"] = ""
                try:
                    check(mesh)
                except Exception:  # whatever it is, its test shows it
                    failures[f"{name}-{kind}"] = traceback.format_exc()
    sys.stdout.write(json.dumps(failures))


if __name__ == "__main__":
    main(*sys.argv[1:])
