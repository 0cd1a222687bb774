"""A state printed as a tree like the model, of bounded length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ..arrays import describe
from ..tree.outline import Path, step
from .layout import Layout
from .spec import struct_of

MOST_LINES = 40
WIDEST = 110


def shown(layout: Layout, at: Path, rule: Callable[[int], Any]) -> str:
    """Write one line per place below `at`, indented, at most MOST_LINES of them."""
    lines: list[str] = []
    total = 0
    for path, cls in layout.skeleton:
        if path[: len(at)] != at:
            continue
        total += 1
        if len(lines) < MOST_LINES:
            lines.append(_line(layout, at, path, cls, rule))
    if total > len(lines):
        lines.append(f"... and {total - len(lines)} more places")
    return "State(\n" + "\n".join(f"  {line}" for line in lines) + "\n)"


def _line(layout: Layout, at: Path, path: Path, cls: str, rule: Callable[[int], Any]) -> str:
    depth = len(path) - len(at)
    name = step(path[-1], False) + ": " if depth else ""
    indent = "  " * min(depth, 20)
    place = layout.places.get(path)
    if place is None:
        return f"{indent}{name}{cls}"[:100]
    i, j = place
    if j:
        return f"{indent}{name}tied to {layout.params[i].codes[0]}"[:110]
    param, (u, _) = layout.params[i], layout.where(i)
    struct = struct_of(layout.units[u].spec.template, param.dtype, param.shape)[1]
    marks = ", frozen" if param.frozen else ""
    if len(param.paths) > 1:
        marks += f", tied at {len(param.paths)} places"
    array = f"{param.dtype}{list(param.shape)}"
    text = f"{indent}{name}{array} {_brief(rule, i)} {_plain(jax.tree.map(describe, struct))}"
    most = WIDEST - len(marks)
    return (text if len(text) <= most else f"{text[: most - 3]}...") + marks


def _brief(rule: Callable[[int], Any], i: int) -> str:
    try:
        found = rule(i)
    except (AttributeError, IndexError, TypeError, ValueError):
        return "(no numbers: its arrays were mapped to something else)"
    text = repr(found)
    return text if len(text) <= 60 else f"{type(found).__name__}(...)"


def _plain(state: Any) -> str:
    return repr(state).replace("'", "")
