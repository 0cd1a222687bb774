"""One Adam step here, in Optax and in torch, side by side in one table.

    python benchmarks/compare.py [--quick] [--json FILE]

The contestants are `optimisers.update_`, Optax's Adam inside `jax.jit` with state and parameters
donated, and torch's fused Adam (left out where torch is not installed). They get the same numbers,
take turns in one process, and must agree after the warm-up. Torch gets one thread or all, whichever
is faster in the warm-up: its threads wait long for each other on a busy machine.
A step ends when the parameters can be read. Times are medians; their ratios mean more.
"""

import argparse
import gc
import importlib
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]  # it says nothing to mypy

import optimisers

HAS_TORCH = importlib.util.find_spec("torch") is not None
ETA, WARM_UP, SEED = 1e-3, 6, 20261130
Shape = tuple[int, ...]
Arrays = dict[str, dict[str, np.ndarray[Any, np.dtype[np.float32]]]]
Setup = Callable[[Any], Any]
Update = Callable[[Any, Any, Any], tuple[Any, Any]]
HEADER = (
    "parameters",
    *("step: ours, ms", "Optax", "torch", "ours/Optax", "ours/torch"),
    *("setup: ours, ms", "Optax", "first call: ours, ms", "Optax"),
)


@dataclass(frozen=True)
class Case:
    """A model of one row, and how many times each contestant steps it."""

    name: str
    shapes: tuple[Shape, ...]
    rounds: int


@dataclass(frozen=True)
class Row:
    """What one case gave, in seconds; None where torch is missing."""

    case: str
    rounds: int
    ours: float
    optax: float
    torch: float | None
    setup_ours: float
    setup_optax: float
    first_ours: float
    first_optax: float


class Compiled:
    """An optimiser of JAX arrays with its own copy of the parameters: ours or Optax's."""

    def __init__(self, params: Arrays, grads: Arrays, setup: Setup, update: Update) -> None:
        # Copies: an array that shares NumPy's memory could not be donated.
        self.model, self.grads = jax.tree.map(jnp.array, (params, grads))
        self.update = update
        started = time.perf_counter()
        self.state = jax.block_until_ready(setup(self.model))
        self.setup_time = time.perf_counter() - started

    def step(self) -> None:
        """Take one step and wait for its parameters."""
        self.state, self.model = self.update(self.state, self.model, self.grads)
        jax.block_until_ready(self.model)


def optax_update(rule: optax.GradientTransformation) -> Update:
    """Return the step that Optax's documentation shows, jitted, with donation."""

    def update(state: Any, model: Any, grads: Any) -> tuple[Any, Any]:
        updates, state = rule.update(grads, state, model)
        return state, optax.apply_updates(model, updates)

    return jax.jit(update, donate_argnums=(0, 1))


class Torch:
    """Torch's fused Adam, with the gradients already where `backward` would leave them."""

    def __init__(self, params: Arrays, grads: Arrays) -> None:
        # Not a plain import: its type stubs would be checked for minutes, and it may be missing.
        self.torch = torch = importlib.import_module("torch")
        trained = [torch.nn.Parameter(torch.tensor(x)) for x in jax.tree.leaves(params)]
        self.model = [parameter.detach() for parameter in trained]  # the same memory
        for parameter, grad in zip(trained, jax.tree.leaves(grads), strict=True):
            parameter.grad = torch.tensor(grad)
        self.rule = torch.optim.Adam(trained, lr=ETA, fused=True)
        self.choose_threads()

    def choose_threads(self) -> None:
        """Warm up, then keep one thread or all: on a busy machine all may be 400 times slower."""
        times = {}
        for threads in (1, os.cpu_count() or 1):
            self.torch.set_num_threads(threads)
            times[threads] = min(timed(self.step) for _ in range(WARM_UP // 2))
        self.torch.set_num_threads(min(times, key=lambda threads: times[threads]))

    def step(self) -> None:
        """Take one step; on a CPU torch returns when it is done."""
        self.rule.step()


def small(count: int) -> tuple[Shape, ...]:
    """Return the shapes of weights and biases in turn, `count` in all."""
    return ((32, 32), (32,)) * (count // 2)


def cases(quick: bool) -> Iterator[Case]:
    """List the rows of the table."""
    yield Case("6 small", small(6), 20 if quick else 500)
    yield Case("150 small", small(150), 10 if quick else 100)
    if not quick:
        yield Case("1000 small", small(1000), 20)
        yield Case("150 of 256x256", ((256, 256),) * 150, 15)
        yield Case("1 of 32 million", ((32_000_000,),), 10)


def draw(shapes: Sequence[Shape], seed: int) -> Arrays:
    """Fill nested dicts with normal numbers, two parameters a layer."""
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for k, shape in enumerate(shapes):
        name = "bias" if k % 2 else "weight"
        layer = arrays.setdefault(f"layer{k // 2:03}", {})
        layer[name] = rng.standard_normal(shape, dtype=np.float32)
    return arrays


def timed(step: Callable[[], None]) -> float:
    """Return how long one call takes, in seconds."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def check_agreement(case: Case, contestants: Sequence[Compiled | Torch]) -> None:
    """Stop where two contestants did not compute the same thing: their times would say nothing."""
    ours, *others = (jax.tree.leaves(contestant.model) for contestant in contestants)
    for other in others:
        for k, (a, b) in enumerate(zip(ours, other, strict=True)):
            if not np.allclose(a, b, rtol=1e-4, atol=1e-5):
                raise SystemExit(f"{case.name}: the contestants disagree about parameter {k}")


def take_turns(contestants: Sequence[Compiled | Torch], rounds: int) -> list[float]:
    """Return each one's median step; every round starts with the next in line."""
    times: list[list[float]] = [[] for _ in contestants]
    gc.collect()
    gc.disable()
    try:
        for start in range(rounds):
            for k in range(start, start + len(times)):
                times[k % len(times)].append(timed(contestants[k % len(times)].step))
    finally:
        gc.enable()
    return [statistics.median(each) for each in times]


def measure(case: Case) -> Row:
    """Time one case: setup and first call of the compiled two, then steps in turn."""
    params, grads = draw(case.shapes, SEED), draw(case.shapes, SEED + 1)
    ours_setup = partial(optimisers.setup, optimisers.Adam(ETA))
    ours = Compiled(params, grads, ours_setup, optimisers.update_)
    rule = optax.adam(ETA)
    peer = Compiled(params, grads, rule.init, optax_update(rule))
    contestants: list[Compiled | Torch] = [ours, peer]
    first = [timed(contestant.step) for contestant in contestants]
    for _ in range(WARM_UP - 1):
        ours.step()
        peer.step()
    if HAS_TORCH:
        contestants.append(Torch(params, grads))
    check_agreement(case, contestants)
    mine, theirs, *rest = take_turns(contestants, case.rounds)
    once = (ours.setup_time, peer.setup_time, *first)
    return Row(case.name, case.rounds, mine, theirs, rest[0] if rest else None, *once)


def cells(row: Row) -> list[str]:
    """Write one row of the table, in milliseconds."""
    times = (row.ours, row.optax, row.torch)
    ratios = (row.ours / row.optax, row.torch and row.ours / row.torch)
    once = (row.setup_ours, row.setup_optax, row.first_ours, row.first_optax)
    steps = [f"{1e3 * t:.3f}" if t else "-" for t in times]
    steps += [f"{ratio:.2f}" if ratio else "-" for ratio in ratios]
    return [row.case, *steps, *(f"{1e3 * t:.0f}" for t in once)]


def versions() -> dict[str, str]:
    """Name what was measured; optimisers itself may run from a clone, not installed."""
    names = ("jax", "numpy", "optree", "optax", "torch")
    found = {name: version(name) for name in names if name != "torch" or HAS_TORCH}
    return {"python": platform.python_version(), **found, "optimisers": optimisers.__version__}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options; a file that cannot be written is found out before measuring."""
    parser = argparse.ArgumentParser(description="Adam here, in Optax and in torch, side by side.")
    parser.add_argument("--quick", action="store_true", help="two small rows, few rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here as well")
    options = parser.parse_args(arguments)
    if options.json is not None:
        try:
            options.json.open("a").close()
        except OSError as error:
            parser.error(f"cannot write {options.json}: {error.strerror}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print row by row; large rows take a while."""
    options = parse(arguments)
    measure(Case("thrown away", ((8, 8), (8,)), 1))  # what every first call in a process pays
    print("|", " | ".join(HEADER), "|")
    print("|", " | ".join(["---"] + ["--:"] * (len(HEADER) - 1)), "|")
    rows = []
    for case in cases(options.quick):
        rows.append(measure(case))
        print("|", " | ".join(cells(rows[-1])), "|", flush=True)
    print("\nMeasured:", ", ".join(f"{name} {number}" for name, number in versions().items()))
    if options.json is not None:
        report = {"versions": versions(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
