"""The picture of the benchmarks: the times of a step, as the table on their page has them."""

from __future__ import annotations

from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

from optimisers import race

PAGE = Path(__file__).parent / "benchmarks.md"


def table(text: str) -> tuple[list[str], list[list[str]]]:
    """Return who was measured and the rows of the first table: what, and milliseconds of each."""
    begun = dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    lines = takewhile(lambda line: line.startswith("|"), begun)
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if head[0] != "parameters" or not head[1].startswith("step: ours"):
        raise ValueError(f"the table of {PAGE.name} begins with other columns: {head[:2]}")
    others = list(takewhile(lambda name: "/" not in name, head[2:]))
    return ["optimisers", *others], [row[: 2 + len(others)] for row in rows]


def draw(ground: Any) -> Any:
    """Draw a line for each model, a point for each contestant."""
    names, rows = table(PAGE.read_text(encoding="utf-8"))
    figure = race.new_figure(8, 0.5 + 0.42 * len(rows))
    axes = figure.subplots()
    for at, (_, *times) in enumerate(rows):
        known = [float(time) for time in times if time[:1].isdigit()]
        axes.plot([min(known), max(known)], [-at, -at], color=ground.grey, linewidth=0.8)
    colours = zip(names, race.COLOURS, "osD", strict=False)
    for column, (name, colour, marker) in enumerate(colours, start=1):
        points = [(float(r[column]), -i) for i, r in enumerate(rows) if r[column][:1].isdigit()]
        axes.plot(*zip(*points, strict=True), marker, color=colour, markersize=6, label=name)
    axes.set(xscale="log", xlabel="milliseconds for one step of Adam (less is better)")
    axes.set(yticks=[-i for i in range(len(rows))], yticklabels=[row[0] for row in rows])
    axes.margins(y=0.15)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
    return figure
