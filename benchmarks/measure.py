"""One row of the comparison, in a process of its own; prints what it found as JSON.

    python benchmarks/measure.py MODEL RULE ROUNDS CONTESTANT ...

A process for each row: what an earlier row compiled would make the first call of a later one free.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import numpy as np
from contestants import CONTESTANTS, Contestant
from shapes import MODELS, draw

WARM_UP, SEED = 6, 20261130
compiled: list[float] = []


def note(event: str, seconds: float, **_: Any) -> None:
    """Remember that JAX compiled a program."""
    if event.endswith("backend_compile_duration"):
        compiled.append(seconds)


def timed(step: Callable[[], None]) -> float:
    """Return how long one call takes, in seconds."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def begun(name: str, rule: str, params: Any, grads: Any) -> tuple[Contestant, dict[str, Any]]:
    """Set up one contestant, let it step until it is warm, and say what the beginning cost."""
    before = len(compiled)
    contestant = CONTESTANTS[name](rule, params, grads)
    taken = getattr(contestant, "taken", 0)
    first = None if taken else timed(contestant.step)
    for _ in range(WARM_UP - (taken or 1)):
        contestant.step()
    programs = len(compiled) - before
    return contestant, {"setup": contestant.setup_time, "first": first, "programs": programs}


def take_turns(contestants: Sequence[Contestant], rounds: int) -> list[float]:
    """Return each one's median step; every round is in an order of its own.

    In one order that only rotates, each would mostly find the caches as the same other one left
    them: those of a sibling on JAX, or of torch.
    """
    times: list[list[float]] = [[] for _ in contestants]
    order, shuffled = list(range(len(contestants))), random.Random(SEED)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            shuffled.shuffle(order)
            for k in order:
                times[k].append(timed(contestants[k].step))
    finally:
        gc.enable()
    return [statistics.median(each) for each in times]


def extra_memory(contestant: Contestant) -> int | None:
    """Return by how many bytes a step exceeds what is held between steps; None if nobody tells."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        clear.write_text("5", encoding="ascii")  # forget the peak so far
    except OSError:
        return None
    peaks = []
    for look in (lambda: None, contestant.step):
        look()
        lines = dict(line.split(":", 1) for line in status.read_text("utf-8").splitlines())
        peaks.append(int(lines["VmHWM"].split()[0]) * 1024)
    return peaks[1] - peaks[0]


def check_agreement(contestants: Sequence[Contestant]) -> None:
    """Stop where two contestants did not compute the same thing: their times would say nothing."""
    ours, *others = (jax.tree.leaves(c.model) for c in contestants if c.model is not None)
    for other in others:
        for k, (a, b) in enumerate(zip(ours, other, strict=True)):
            if not np.allclose(a, b, rtol=1e-4, atol=1e-5):
                raise SystemExit(f"the contestants disagree about parameter {k}")


def main(model: str, rule: str, rounds: str, *names: str) -> None:
    """Measure one model and rule, and print the findings."""
    jax.monitoring.register_event_duration_secs_listener(note)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(np.ones(3)))  # what every process pays once
    params, grads = draw(MODELS[model], SEED), draw(MODELS[model], SEED + 1)
    contestants, found = [], {}
    for name in names:
        contestant, found[name] = begun(name, rule, params, grads)
        contestants.append(contestant)
    check_agreement(contestants)
    for name, seconds in zip(names, take_turns(contestants, int(rounds)), strict=True):
        found[name]["step"] = seconds
    for name, contestant in zip(names, contestants, strict=True):
        found[name]["memory"] = extra_memory(contestant)
    held = sum(x.nbytes for x in jax.tree.leaves((params, grads)))
    print(json.dumps({"model": model, "rule": rule, "rounds": int(rounds), "bytes": held, **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
