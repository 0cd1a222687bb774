"""The programs of a step, as XLA compiled them, and their kernels."""

from __future__ import annotations

import re
from typing import Any

import jax

from optimisers import update
from optimisers.api.general import prepared
from optimisers.state.plan import flattened
from optimisers.state.programs import Job, arguments, program_for


def jobs(state: Any, model: Any, grads: Any) -> list[Job]:
    """Return what a step would run."""
    found = flattened(state._box.layout, (), (model, grads))
    return prepared(state, *found, "parts", False).jobs


def kernels(state: Any, model: Any, grads: Any, traced: bool) -> list[str]:
    """Return the kernels of a step of one job, or of a user's program around it.

    Names and where they come from are left out, so that equal kernels are equal.
    """
    (job,) = jobs(state, model, grads)
    program, args = program_for("step", job.spec, job.in_rows), arguments(job)
    if traced:
        program, args = jax.jit(update), (state, model, grads)
    text = program.lower(*args).compile().as_text()
    bodies = re.findall(r"^%(?:fused|wrapped)[^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"%[\w.\-]+|, metadata=\{[^}]*\}", "", body) for body in bodies]
