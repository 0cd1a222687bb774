"""What Python costs: a step without its programs, for each parameter, and the import.

    python benchmarks/overhead.py [PARAMETERS ...]

A program here returns what it was given, so that what is left is finding, checking and writing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from shapes import draw, small

import optimisers
from optimisers.state.plan import flattened

ROUNDS, IMPORTS = 60, 9
STATEMENTS = (
    "import optimisers",
    "from optimisers import Adam, setup, update_",
    "from optimisers import *",
    "import optree",
)
IMPORT = """
import time, jax, jax.numpy, numpy
started = time.perf_counter()
{statement}
print(time.perf_counter() - started)
"""


def untouched(hypers: Any, rest: Any, xs: Any, *others: Any) -> tuple[Any, Any]:
    """Stand for a program; nothing is computed, and nobody's memory is given away."""
    return rest, xs


def models(count: int) -> Iterator[tuple[str, Any]]:
    """Yield a model of small parameters as dicts, as lists and as tuples."""
    layers: Mapping[str, Any] = draw(small(count), 0)
    yield "dicts", layers
    yield "lists", [list(layer.values()) for layer in layers.values()]
    yield "tuples", tuple(tuple(layer.values()) for layer in layers.values())


def bookkeeping(model: Any) -> float:
    """Return how long `update_` takes without its programs, in seconds."""
    model, grads = (jax.tree.map(jax.numpy.array, model) for _ in range(2))
    state = optimisers.setup(optimisers.Adam(), model)
    for _ in range(4):
        state, model = optimisers.update_(state, model, grads)
    _, plan = flattened(state._box.layout, (), (model, grads))
    if plan.whole is None:
        raise SystemExit("this model does not take the quick way")
    programs = plan.whole.programs
    programs.update({key: (untouched, begins) for key, (_, begins) in programs.items()})
    return median(lambda: optimisers.update_(state, model, grads))


def median(call: Callable[[], Any]) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def imported(statement: str) -> float:
    """Return how long an import takes in a process that has imported JAX and NumPy."""
    command = [sys.executable, "-c", IMPORT.format(statement=statement)]
    times = [float(subprocess.check_output(command, text=True)) for _ in range(IMPORTS)]
    return statistics.median(times)


def main(arguments: Sequence[str]) -> None:
    """Print both."""
    for count in map(int, arguments or (6, 150, 1000, 3000)):
        for name, model in models(count):
            each = bookkeeping(model) / count * 1e6
            print(f"{each:6.2f} microseconds a parameter: {count} small in {name}", flush=True)
    for statement in STATEMENTS:
        print(f"{imported(statement) * 1e3:6.1f} milliseconds after jax: {statement}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
