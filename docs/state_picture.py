"""The picture of a state: the model as a tree on the left, the packs and bundles on the right."""

from __future__ import annotations

from typing import Any

import numpy as np

import optimisers
from optimisers import Adam, race
from optimisers.state.spec import WIDTH

STEP, INDENT, LEFT, RIGHT = 1.0, 0.45, 0.2, 6.4


def a_model() -> dict[str, Any]:
    """Return a model with small and large parameters, a tied one, and one that is no parameter."""
    rng = np.random.default_rng(0)

    def dense(rows: int, columns: int) -> dict[str, Any]:
        weights = rng.normal(size=(rows, columns)).astype(np.float32)
        return {"b": np.zeros(columns, np.float32), "w": weights}

    embed = rng.normal(size=(500, 64)).astype(np.float32)
    return {"embed": embed, "layers": [dense(64, 96), dense(96, 64)], "name": "net", "out": embed}


def draw(ground: Any) -> Any:
    """Draw the state of the model under Adam, as `setup` keeps it."""
    layout = optimisers.setup(Adam(), a_model())._box.layout
    figure = race.new_figure(8, 4.6)
    axes = figure.subplots()
    axes.axis("off")
    axes.text(LEFT, 1.0, "the state, as you look at it", weight="bold")
    axes.text(RIGHT, 1.0, "how it is kept: one program for each box", weight="bold")
    lines = [(path, kind) for path, kind in layout.skeleton if path]
    heights = {path: -STEP * i for i, (path, _) in enumerate(lines)}
    for path, kind in lines:
        _line(axes, path, kind, heights, layout, ground)
    at = 0.0
    for unit, fill in zip(layout.units, ground.fills, strict=False):
        at = _unit(axes, unit, fill, at, heights, layout, ground)
    axes.set(xlim=(0, 12.4), ylim=(min(*heights.values(), at) - 0.8, 1.6))
    return figure


def _line(axes: Any, path: Any, kind: str, heights: Any, layout: Any, ground: Any) -> None:
    """Write one node of the tree, joined to the node above it."""
    x, y = LEFT + INDENT * (len(path) - 1), heights[path]
    if len(path) > 1:
        above = heights[path[:-1]]
        left = x - INDENT + 0.12
        axes.plot([left, left, x - 0.06], [above - 0.3, y, y], color=ground.grey, linewidth=0.8)
    where = layout.places.get(path)
    key = path[-1] if isinstance(path[-1], str) else f"[{path[-1]}]"
    if where is None:
        text = f"{key}   {kind}" if kind in ("dict", "list") else f"{key}   not trained"
        axes.text(x, y, text, va="center", color=ground.grey)
        return
    index, place = where
    param = layout.params[index]
    shape = " x ".join(map(str, param.shape))
    tied = "" if place == 0 else "   the same parameter"
    axes.text(x, y, f"{key}   {shape}{tied}", va="center")
    axes.plot([4.7], [y], "o", color=ground.line, markersize=3.5)


def _unit(
    axes: Any, unit: Any, fill: str, at: float, heights: Any, layout: Any, ground: Any
) -> float:
    """Draw a box for a unit, its parameters inside; returns where the next one begins."""
    left, top, tall = RIGHT - 0.25, at + 0.55, STEP * (len(unit.params) + 1.2)
    corners = [(left, top), (12.2, top), (12.2, top - tall), (left, top - tall)]
    axes.fill(*zip(*corners, strict=True), color=fill, linewidth=0)
    what = f"a pack: rows of {WIDTH}" if unit.spec.packed else "a bundle: each as it is"
    axes.text(RIGHT, at, f"{what}, with Adam's two moments", va="center", style="italic")
    for j, index in enumerate(unit.params, start=1):
        param, y = layout.params[index], at - STEP * j
        size = int(np.prod(param.shape))
        rows = f"{-(-size // WIDTH)} rows" if unit.spec.packed else f"{size:,} elements"
        axes.text(RIGHT, y, f"{param.codes[0]}   {rows}", va="center", family="monospace", size=8)
        for path in param.paths:
            axes.plot([4.75, RIGHT - 0.3], [heights[path], y], color=ground.line, linewidth=0.7)
    return at - tall - 0.35
