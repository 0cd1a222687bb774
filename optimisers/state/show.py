"""A state printed as a tree like the model, of bounded length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ..arrays import describe
from ..tree.outline import Path, step
from .layout import Layout

MOST_LINES = 40


def shown(layout: Layout, at: Path, part: Callable[[Path], Any]) -> str:
    """Write one line per place below `at`, indented, at most MOST_LINES of them."""
    lines: list[str] = []
    total = 0
    for path, cls in layout.skeleton:
        if path[: len(at)] != at:
            continue
        total += 1
        if len(lines) < MOST_LINES:
            lines.append(_line(layout, at, path, cls, part))
    if total > len(lines):
        lines.append(f"... and {total - len(lines)} more places")
    return "State(\n" + "\n".join(f"  {line}" for line in lines) + "\n)"


def _line(layout: Layout, at: Path, path: Path, cls: str, part: Callable[[Path], Any]) -> str:
    depth = len(path) - len(at)
    name = step(path[-1], False) + ": " if depth else ""
    indent = "  " * min(depth, 20)
    place = layout.places.get(path)
    if place is None:
        return f"{indent}{name}{cls}"[:100]
    i, j = place
    if j:
        return f"{indent}{name}tied to {layout.params[i].codes[0]}"[:100]
    view = part(path)
    state = jax.tree.map(describe, view.state)
    frozen = ", frozen" if view.frozen else ""
    return f"{indent}{name}{_brief(view.rule)} {_plain(state)}{frozen}"[:110]


def _brief(rule: Any) -> str:
    text = repr(rule)
    return text if len(text) <= 60 else f"{type(rule).__name__}(...)"


def _plain(state: Any) -> str:
    return repr(state).replace("'", "")
