"""Compare measurements with the targets, and print what falls short.

    python benchmarks/check.py [FILE.json]

FILE is what `compare.py --json` wrote; without it a quick run is made. Times on a busy machine say
little, so that nothing fails here: a person reads it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare import measured, ratio, rows

# (model, rule, what, against whom, which time, target); ratios to jitted, donated Optax mostly.
TARGETS: Sequence[tuple[str, str, str, str, str, float]] = (
    ("6 small", "Adam", "update_", "Optax", "step", 0.8),
    ("150 small", "Adam", "update_", "Optax", "step", 0.7),
    ("1000 small", "Adam", "update_", "Optax", "step", 0.55),
    ("3000 small", "Adam", "update_", "Optax", "step", 0.5),
    ("150 different", "Adam", "update_", "Optax", "step", 0.8),
    ("150 different", "Adam", "update_", "Optax", "first", 0.4),
    ("ResNet-50", "Adam", "update_", "Optax", "step", 1.0),
    ("GPT-2 small", "Adam", "update_", "Optax", "step", 1.0),
    ("1 of 32 million", "Adam", "update_", "Optax", "step", 1.0),
    ("150 small", "Adam", "update_, torch", "torch fused", "step", 1.2),
    ("1000 small", "Adam", "update_, torch", "torch fused", "step", 1.2),
    ("6 small", "Adam", "update_", "Optax", "first", 1.9),
    ("150 small", "Adam", "update_", "Optax", "first", 0.8),
    ("1000 small", "Adam", "update_", "Optax", "first", 0.2),
    ("3000 small", "Adam", "update_", "Optax", "first", 0.1),
    ("ResNet-50", "Adam", "update_", "Optax", "first", 1.5),
    ("150 small", "Adam", "update_ in jit", "Optax", "step", 0.7),
    ("1000 small", "Adam", "update_ in jit", "Optax", "step", 0.7),
    ("150 small", "Adam", "update_ in jit", "Optax", "first", 1.3),
    ("1000 small", "Adam", "update_ in jit", "Optax", "first", 0.8),
    ("1000 small", "AdamW, norm clipped", "update_", "Optax", "step", 0.6),
    ("1 of 32 million", "Adam", "update_, NumPy", "update_", "step", 2.0),
)


def main(arguments: Sequence[str]) -> None:
    """Print each target that was measured, and whether it is met."""
    found: list[Any]
    if arguments:
        found = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))["rows"]
    else:
        found = [measured(row) for row in rows(quick=True)]
    by = {(f["model"], f["rule"]): f for f in found}
    missed = 0
    for model, rule, name, peer, what, target in TARGETS:
        got = ratio(by.get((model, rule), {}), name, peer, what)
        if got is None:
            continue
        missed += got > target
        verdict = "met" if got <= target else "MISSED"
        where = f"{what} of {name} to {peer}: {model}, {rule}"
        print(f"{verdict:7}{got:6.2f} (target {target:.2f})  {where}")
    print(f"{missed} targets missed")


if __name__ == "__main__":
    main(sys.argv[1:])
