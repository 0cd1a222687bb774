"""Running the units of one step: jobs, their compiled programs, and the order of questions.

A job is one unit, or one parameter of a bundle of which only some have a gradient. Eagerly each job
is one compiled call; on tracers the same functions are inlined into the user's program.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..arrays.numbers import precision, x64_enabled
from ..arrays.ops import concretely
from ..errors import NonFiniteError, RuleError
from ..rules.across import Ask, How, combined
from . import rows as host_rows
from .carried import Carried, flat, of_one, with_one
from .kernel import Given, ask_unit, step_unit, unfolded
from .large import Results, large_step
from .layout import Layout, Unit
from .programs import Job, Work, arguments, called, joint_question, kept_home, opened_arguments
from .spec import Spec


def jobs_for(
    layout: Layout, arrays: Sequence[list[Any]], work: dict[int, Work], write: bool, traced: bool
) -> list[Job]:
    """Cut a call into jobs; parameters that are frozen or have no gradient cause none."""
    jobs: list[Job] = []
    for u, todo in work.items():
        unit, live = layout.units[u], layout.live[u]
        present = [ok and g is not None for ok, g in zip(live, todo.grads[0], strict=True)]
        if not (any(present) or (unit.spec.every_call and any(live))):
            continue
        owned = write and not traced and is_owned(arrays[u][1:])
        owned = owned and not isinstance(arrays[u][0], np.ndarray)
        if all(present) or unit.spec.packed or unit.spec.every_call:
            jobs.append(_whole(layout, u, arrays[u], todo, present, live, traced))
        else:
            jobs += _singles(layout, u, arrays[u], todo, present)
        host = any(isinstance(g, np.ndarray) for gs in todo.grads for g in gs)
        for job in jobs:
            if job.unit == u:
                job.reads_host = host
                job.give_state = owned
                full = job.given.present is None
                job.give_params = write and full and not (traced or todo.alias or unit.host)
    return jobs


def _whole(
    layout: Layout, u: int, arrays: list[Any], todo: Work, present: Sequence[bool],
    live: Sequence[bool], traced: bool,
) -> Job:  # fmt: skip
    unit = layout.units[u]
    hyper, *rest = arrays
    codes = layout.codes[u]
    full = all(present)
    xs, grads = todo.xs, _heeded(unit.spec, todo, present, codes)
    if unit.host and unit.spec.packed and not traced:
        grads = tuple(host_rows.pack(unit.spec, gs) for gs in grads)
        xs = host_rows.pack(unit.spec, xs)
    elif not full:
        grads = tuple(_filled(gs, xs, traced) for gs in grads)
    given = Given(
        grads,
        None if full else np.array(present),
        None if all(live) or not unit.spec.every_call else np.array(live),
    )
    return Job(u, unit.spec, hyper, rest, xs, given, range(len(codes)), codes, unit.host)


def _filled(gs: Sequence[Any], xs: Sequence[Any], traced: bool) -> tuple[Any, ...]:
    """Put something of the right shape and dtype where a gradient is missing; it is masked out."""
    # The parameter itself costs nothing, and its dtype is what gradients mostly have.
    return tuple(x if g is None else g for g, x in zip(gs, xs, strict=True))


def _singles(
    layout: Layout, u: int, arrays: list[Any], todo: Work, present: Sequence[bool]
) -> list[Job]:
    unit, codes = layout.units[u], layout.codes[u]
    hyper, *rest = arrays
    grads = _heeded(unit.spec, todo, present, codes)
    return [
        Job(
            u,
            unit.spec.alone(i),
            hyper,
            of_one(unit.spec, rest, i),
            (todo.xs[i],),
            Given(tuple((gs[i],) for gs in grads), None, None),
            (i,),
            (codes[i],),
            unit.host,
            i,
        )
        for i, ok in enumerate(present)
        if ok
    ]


def _heeded(
    spec: Spec, todo: Work, present: Sequence[bool], codes: Sequence[str]
) -> tuple[tuple[Any, ...], ...]:
    """Return the gradients that a unit's rules are given: each order whole, or not at all.

    A missing higher gradient is an error only for rules that take it.
    """
    for n, gs in enumerate(todo.grads[1:], 1):
        missing = [code for g, ok, code in zip(gs, present, codes, strict=True) if ok and g is None]
        if missing and (n > spec.higher or len(missing) == sum(present)):
            return todo.grads[:n]
        if missing:
            raise RuleError(f"{missing[0]} has a first gradient but not every higher one")
    return todo.grads


def whole_job(
    layout: Layout, u: int, arrays: list[Any], xs: Any, grads: Sequence[Any], write: bool
) -> Job:
    """Return the job of a unit in which every parameter moves; arrays as its program takes them.

    write: whether the memory of state and JAX parameters may be given away.
    """
    unit, codes = layout.units[u], layout.codes[u]
    rest = arrays[1:]
    own = write and is_owned(rest)
    given, give_params = Given(tuple(grads), None, None), write and not unit.host
    return Job(u, unit.spec, arrays[0], rest, xs, given, range(len(codes)), codes, unit.host,
               None, own, give_params)  # fmt: skip


def closed(unit: Unit, arrays: list[Any], job: Job, rest: Sequence[Any]) -> None:
    """Put what a job's parameters carry back into the flat list of their unit."""
    arrays[1:] = rest if job.row is None else with_one(unit.spec, arrays[1:], job.row, rest)


def answer_questions(jobs: Sequence[Job], traced: bool, jointly: bool = False) -> None:
    """Run, job by job, what must be known before a step: norms of the model, and what they need.

    What only one job asks, its own program answers on the way. jointly: have one program answer
    for all jobs, which must be of one dtype, at one place, and always the same ones.
    """
    asked = Counter(ask.key for job in jobs for ask in job.spec.asks if ask.scope == "model")
    common = {key for key, jobs_asking in asked.items() if jobs_asking > 1}
    while True:
        waiting = [(job, left[0]) for job, left in ((job, _left(job)) for job in jobs)
                   if any(ask.key in common for ask in left)]  # fmt: skip
        if not waiting:
            return
        own = [job for job, ask in waiting if ask.key not in common]
        if own:
            for job in own:
                job.answers.append(_asked(job, traced))
            continue
        key = _next_key(waiting)
        asking = [job for job, ask in waiting if ask.key == key]
        how: How = next(ask.how for _, ask in waiting if ask.key == key)
        if jointly:
            _ask_jointly(asking, how)
            continue
        parts = [_asked(job, traced) for job in asking]
        for job in asking:
            job.answers.append(_combine(parts, how, job, traced))


def _ask_jointly(jobs: Sequence[Job], how: How) -> None:
    program = joint_question(tuple(job.spec for job in jobs), how)
    answer, grads = concretely(program, [arguments(job, cut=False) for job in jobs])
    for job, rows in zip(jobs, grads, strict=True):
        job.answers.append(answer)
        if rows is not None:
            job.given = job.given._replace(grads=rows)


def _left(job: Job) -> tuple[Ask, ...]:
    return job.spec.asks[len(job.answers) :]


def _next_key(waiting: Sequence[tuple[Job, Ask]]) -> str:
    """Return a question that every job which will ever ask it is asking now."""
    for _, ask in waiting:
        later = {a.key for job, _ in waiting for a in _left(job)[1:]}
        if ask.key not in later:
            return ask.key
    raise RuleError("rules at different parameters ask about the whole model in opposite orders")


def _combine(parts: Sequence[Any], how: How, job: Job, traced: bool) -> Any:
    if len(parts) == 1:
        return parts[0]
    dtype = job.hyper.dtype
    if traced:
        return combined(jax.tree.map(lambda p: p.astype(dtype), parts), how)
    leaves = jax.tree.leaves(parts)
    with precision(any(str(p.dtype) == "float64" for p in leaves)):
        if len({getattr(p, "sharding", None) for p in leaves}) > 1:
            parts = jax.tree.map(np.asarray, parts)  # or the answer would draw all to one device
        return concretely(_combining(how, str(dtype)), tuple(parts))


@functools.cache
def _combining(how: How, dtype: str) -> Any:
    """Return the program that combines the units' parts of a reduction, in the widest of them."""

    def combining(parts: Any) -> Any:
        widest = np.result_type(*(p.dtype for p in jax.tree.leaves(parts)))
        wide = [jax.tree.map(lambda p: p.astype(widest), part) for part in parts]
        return jax.tree.map(lambda p: p.astype(dtype), combined(wide, how))

    return jax.jit(combining)


def _asked(job: Job, traced: bool) -> Any:
    if traced:
        return ask_unit(job.spec, *_opened(job))
    answer, grads = called(job, "ask")
    if grads is not None:
        job.given = job.given._replace(grads=grads)
    return answer


def check(jobs: Sequence[Job], traced: bool) -> None:
    """Raise the errors that need a value, before anything is written or given away."""
    if traced:
        return
    for job in jobs:
        if not job.spec.requires:
            continue
        checks = called(job, "check")
        for message, ok in zip(job.spec.requires, checks, strict=True):
            bad = np.flatnonzero(~np.asarray(ok))
            if bad.size:
                raise NonFiniteError(f"{message}, at {job.codes[bad[0]]}; nothing was changed")


def run_all(
    jobs: Sequence[Job], traced: bool, steps: bool = False, kept: Results | None = None
) -> list[tuple[Job, list[Any], Any]]:
    """Take the step of each job; what one of a bundle makes of the tables goes to the next.

    Returns:
        For each job itself, what it carries on, and its parameters or steps (see `run`).
    """
    tables: dict[int, list[Any]] = {}
    results = []
    for job in jobs:
        cut = len(job.spec.form.tables)
        job.rest = [*tables.get(job.unit, job.rest[:cut]), *job.rest[cut:]]
        rest, params = run(job, traced, steps, kept)
        tables[job.unit] = rest[:cut]
        results.append((job, rest, params))
    return results


def _opened(job: Job) -> tuple[Any, Carried, Any, Given]:
    """Return what a kernel takes, inside somebody's program."""
    spec, given, begins = job.spec, job.given, unfolded(job.spec.places(job.row), job.rest[0])
    masks = given.present, given.live
    return opened_arguments(
        spec, job.hyper, job.rest, job.xs, given.grads, begins, *masks, tuple(job.answers)
    )


def run(
    job: Job, traced: bool, steps: bool = False, kept: Results | None = None
) -> tuple[list[Any], Any]:
    """Take the step of one job; returns what it carries on, and its parameters or steps.

    kept: where results may be written that are copied to host memory afterwards (see `large_step`).
    """
    if traced:
        hyper, carried, xs, given = _opened(job)
        out = step_unit(job.spec, hyper, carried, xs, given, steps)
        return flat(job.spec, out.carried), out.params
    done = None if kept is None else large_step(job, kept)
    what = "steps" if steps else "step"
    rest, params = done or called(job, what, job.give_state, job.give_params)
    if not job.host:
        rest, params = kept_home(job, rest, params)
    if job.spec.wide and not x64_enabled():
        rest = list(map(np.asarray, rest))
    if job.in_rows:
        params = host_rows.unpack(job.spec, np.asarray(params))
    return rest, params


def is_owned(rest: list[Any]) -> bool:
    """Tell whether nobody holds any of these arrays but a state, from whose list they were sliced.

    There is at least one, as the steps of each parameter are counted.

    The count of references is exact, and needs no marks: whoever shares an array (another state, a
    `jax.tree.leaves`, a variable of the user's) raises it, and it falls when they let go.
    """
    return max(map(sys.getrefcount, rest)) <= ALONE


_SAMPLE = [object()]
ALONE = max(map(sys.getrefcount, _SAMPLE[0:]))  # in a list and its slice
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    ALONE = -1  # without the lock, counts are estimates: give nothing away
