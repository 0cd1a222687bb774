"""One step here, in Optax and in torch, side by side: a table, and pictures of it.

    python benchmarks/compare.py [--quick] [--json FILE] [--plot FILE.png]

The contestants of a row get the same numbers, take turns in one process, and must agree after the
warm-up; each row has a process of its own. A step ends when its parameters can be read. Times are
medians; their ratios mean more. Torch (left out where it is not installed) gets one thread or all,
whichever is faster in its warm-up: its threads wait long for each other on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from contestants import HAS_TORCH, NEEDS_TORCH

import optimisers

PEERS = ("Optax", "torch fused")
ALL = ("update_", "update", "update_ in jit", "Optax", "Optax, not donated", "torch fused",
       "torch foreach", "update_, NumPy", "update_, torch", "bytes alone")  # fmt: skip
Found = dict[str, Any]


class Row(NamedTuple):
    """What one process measures."""

    model: str
    rule: str
    rounds: int
    names: Sequence[str]


def rows(quick: bool) -> Iterator[Row]:
    """List the rows of the table."""
    if quick:
        yield Row("6 small", "Adam", 20, ALL)
        yield Row("150 small", "AdamW, norm clipped", 5, ("update_", *PEERS))
        return
    few = ("update_", *PEERS)
    for model, rounds in (("1 small", 500), ("6 small", 500), ("50 small", 200), ("150 small", 100),
                          ("1000 small", 30)):  # fmt: skip
        yield Row(model, "Adam", rounds, ALL)
    yield Row("3000 small", "Adam", 12, few)  # Optax compiles it for a minute
    for model, rounds in (("MLP", 100), ("150 different", 100), ("150 of 128x128", 30),
                          ("150 of 256x256", 15), ("ResNet-50", 10),
                          ("GPT-2 small", 5)):  # fmt: skip
        yield Row(model, "Adam", rounds, few)
    yield Row("1 of 32 million", "Adam", 10, (*few, "update_, NumPy", "bytes alone"))
    for rule in ("Descent", "Momentum", "AdamW, norm clipped"):
        for model, rounds in (("6 small", 300), ("150 small", 60), ("1000 small", 20)):
            yield Row(model, rule, rounds, few)


def measured(row: Row) -> Found:
    """Measure a row in a new process."""
    names = [name for name in row.names if HAS_TORCH or name not in NEEDS_TORCH]
    script = str(Path(__file__).with_name("measure.py"))
    command = [sys.executable, script, row.model, row.rule, str(row.rounds), *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{row.model}, {row.rule}: the measurement failed, see above")
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def ratio(found: Found, name: str, peer: str, what: str = "step") -> float | None:
    """Return how many times as long `name` takes as `peer`; None if one was not measured."""
    a, b = found.get(name, {}).get(what), found.get(peer, {}).get(what)
    return a / b if a and b else None


def cell(value: float | None, scale: float = 1.0, digits: int = 2) -> str:
    """Write a number, or a dash."""
    return "-" if value is None else f"{value * scale:.{digits}f}"


HEADER = (
    "parameters", "step: ours, ms", "Optax", "torch fused", "ours/Optax", "ours/torch",
    "setup: ours, s", "first: ours, s", "Optax", "programs: ours", "extra memory",
)  # fmt: skip


def cells(found: Found) -> list[str]:
    """Write one row of the table of steps."""
    mine, optax, torch = (found.get(name, {}) for name in ("update_", *PEERS))
    memory = mine["memory"]
    return [
        found["model"] if found["rule"] == "Adam" else f"{found['model']}, {found['rule']}",
        *(cell(each.get("step"), 1e3, 3) for each in (mine, optax, torch)),
        cell(ratio(found, "update_", "Optax")), cell(ratio(found, "update_", "torch fused")),
        cell(mine["setup"]), cell(mine["first"]), cell(optax["first"]), str(mine["programs"]),
        # Above the model, its gradients, and two moments of each parameter.
        "-" if memory is None else f"{memory / (2 * found['bytes']):.0%}",
    ]  # fmt: skip


WAYS = ("update_", "update", "update_ in jit", "update_, NumPy", "update_, torch")


def way_cells(found: Found) -> list[str]:
    """Write one row of the table of ways: each against Optax, and on torch's against torch."""
    against = [cell(ratio(found, name, "Optax")) for name in WAYS]
    others = [cell(ratio(found, "update_, torch", name)) for name in ("torch fused",)]
    plain = cell(ratio(found, "update", "Optax, not donated"))
    jit = cell(ratio(found, "update_ in jit", "Optax", "first"))
    return [found["model"], *against, *others, plain, jit]


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown, numbers to the right."""
    rule = ["---"] + ["--:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))


def plot(file: Path, found: Sequence[Found]) -> None:
    """Draw step and first call over the number of small parameters, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    small = [f for f in found if f["rule"] == "Adam" and f["model"].endswith(" small")
             and f["model"][0].isdigit()]  # fmt: skip
    counts = [int(f["model"].split()[0]) for f in small]
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    colours = {"update_": "#0072B2", "Optax": "#D55E00", "torch fused": "#777777"}
    titles = {"step": "One step", "first": "The first call"}
    for ax, (what, title) in zip(axes, titles.items(), strict=True):
        for name, colour in colours.items():
            times = [f.get(name, {}).get(what) for f in small]
            if None not in times:
                label = "optimisers" if name == "update_" else name
                ax.loglog(counts, [1e3 * t for t in times], "o-", color=colour, label=label)
        ax.set(title=title, xlabel="small parameters", ylabel="milliseconds")
        ax.grid(which="major", alpha=0.3)
        ax.legend(frameon=False)
    figure.savefig(file, dpi=150)


def versions() -> dict[str, str]:
    """Name what was measured; optimisers itself may run from a clone, not installed."""
    names = ("jax", "numpy", "optree", "optax", "torch")
    found = {name: version(name) for name in names if name != "torch" or HAS_TORCH}
    return {"python": platform.python_version(), **found, "optimisers": optimisers.__version__}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options; a file that cannot be written is found out before measuring."""
    parser = argparse.ArgumentParser(description="Rules here, in Optax and in torch, side by side.")
    parser.add_argument("--quick", action="store_true", help="two small rows, few rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here as well")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the small models")
    options = parser.parse_args(arguments)
    for file in filter(None, (options.json, options.plot)):
        try:
            file.open("a").close()
        except OSError as error:
            parser.error(f"cannot write {file}: {error.strerror}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure row by row, and print the tables; large rows take a while."""
    options = parse(arguments)
    print(table(HEADER, []), flush=True)
    found = []
    for row in rows(options.quick):
        found.append(measured(row))
        print("| " + " | ".join(cells(found[-1])) + " |", flush=True)
    every = [f for f in found if "update_ in jit" in f]
    header = ("parameters", *(f"{way}/Optax" for way in WAYS), "torch leaves/torch fused",
              "update/not donated", "first in jit/Optax")  # fmt: skip
    print("\n" + table(header, [way_cells(f) for f in every]))
    print("\nMeasured:", ", ".join(f"{name} {number}" for name, number in versions().items()))
    if options.json is not None:
        report = {"versions": versions(), "rows": found}
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if options.plot is not None:
        plot(options.plot, found)


if __name__ == "__main__":
    main()
