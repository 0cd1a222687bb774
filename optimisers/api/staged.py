"""The quick way of a step on host memory: many small arrays copied at once, there and back.

It is open where all parameters are small arrays of one library that can copy many in one call, are
where they were in the last step, and each has a gradient. What is unusual is left to the general
way, which looks at each array by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays import adapter_of
from ..arrays.adapter import Bulk
from ..arrays.overlap import overlapping
from ..state.engine import answer_questions, whole_job
from ..state.plan import Whole
from ..state.programs import called
from ..state.rows import Stage
from ..state.spec import Spec
from ..state.state import Box, check_arrays


def staged_step(box: Box, whole: Whole, given: tuple[Any, ...]) -> bool:
    """Take a step in place, and tell whether this way was open; nothing is changed if not."""
    adapters = set(map(adapter_of, set(map(type, given))))
    adapter = adapters.pop()
    if adapters or adapter is None or adapter.bulk is None:
        return False
    parts = [part(given) for part in whole.parts]
    specs = [unit.spec for unit in box.layout.units]
    # The first time, after a change of rules, or with arrays of another library.
    if [(stage.spec, stage.bulk) for stage in box.stages] != [(s, adapter.bulk) for s in specs]:
        box.stages = _stages(specs, adapter.bulk, parts)
    rows = [stage.load(xs, grads) for stage, (xs, *grads) in zip(box.stages, parts, strict=False)]
    if not rows or not all(rows):
        box.stages = []
        return False
    check_arrays(box.layout, box.arrays)  # before any program has run
    jobs = [
        whole_job(box.layout, u, box.arrays[u], each[0], each[1:], True)
        for u, each in enumerate(rows) if each
    ]  # fmt: skip
    if whole.asks:
        answer_questions(jobs, False)
    done = [called(job, "step", job.give_state) for job in jobs]
    for u, (rest, moved) in enumerate(done):
        box.arrays[u][1:] = rest
        box.stages[u].store(parts[u][0], moved)
    return True


def _stages(specs: Sequence[Spec], bulk: Bulk, parts: Sequence[Any]) -> list[Stage]:
    """Return where the arrays of each unit are laid out; none if any is not plain enough."""
    plain = all(bulk.fits(xs, spec.dtype, spec.shapes, True)
                for spec, (xs, *_) in zip(specs, parts, strict=True))  # fmt: skip
    if not plain or overlapping([bulk.view(x) for xs, *_ in parts for x in xs]):
        return []
    return [
        Stage(spec, bulk, xs, len(grads)) for spec, (xs, *grads) in zip(specs, parts, strict=True)
    ]
