"""Compiled programs: one for each spec, called with a job's arrays, and what such calls must mind.

Memory that is given to the results, arrays that are not where the others are, errors of a rule.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import jax

from ..arrays.numbers import precision
from ..arrays.ops import concretely, cpu, on_cpu, own_array
from ..rules.across import How, combined
from .carried import Carried, flat, opened
from .kernel import Given, ask_rows, ask_unit, check_fit, in_rows as rows_of, step_rows, step_unit
from .spec import Spec


@dataclass
class Job:
    """One program to run: what it is given, and where its results belong.

    hyper, rest: arrays of the state, as it holds them: hyper-parameters, and what is carried.
    members: the places in the unit of the job's parameters. row: that of the only one, if it is a
    bundle's and the others stand still. give_state, give_params: whose memory
    is given to the results. reads_host: whether some gradient is memory of the caller's.
    """

    unit: int
    spec: Spec
    hyper: Any
    rest: Sequence[Any]
    xs: tuple[Any, ...]
    given: Given
    members: Sequence[int]
    codes: Sequence[str]
    host: bool
    row: int | None = None
    give_state: bool = False
    give_params: bool = False
    reads_host: bool = False
    answers: list[Any] = field(default_factory=list)

    @property
    def movable(self) -> list[int]:
        """Which of the job's parameters may have moved: not frozen, and with a gradient.

        A rule that runs without gradients may move any that is not frozen.
        """
        flags = self.given.live if self.spec.every_call else self.given.present
        at = range(len(self.members))
        return list(at) if flags is None else [i for i in at if flags[i]]

    @property
    def in_rows(self) -> bool:
        """Whether the pack was laid out in rows by NumPy, outside the program."""
        return self.host and self.spec.packed


@dataclass
class Work:
    """What a unit is asked to do in one call, parameters and gradients in the unit's order.

    alias: somebody else needs the parameters' arrays after the call.
    """

    xs: tuple[Any, ...]
    grads: tuple[tuple[Any, ...], ...]
    alias: bool = False


def arguments(job: Job, cut: bool = True) -> tuple[Any, ...]:
    """Return what a program is called with: a job's arrays, and where its parameters are in them.

    All in flat sequences, and nothing that is as it mostly is: each costs JAX time in each call.
    cut: whether the program will cut parameters from a pack.
    """
    given, begins = job.given, ()
    if not job.spec.packed or (cut and not job.in_rows):
        begins = begins_of(job.spec, _home_of(job), job.row)
    usual = given.present is None and given.live is None and not job.answers
    unusual = () if usual else (given.present, given.live, tuple(job.answers))
    return job.hyper, job.rest, job.xs, list(given.grads), begins, *unusual


@functools.lru_cache(maxsize=4096)
def begins_of(spec: Spec, home: Any = None, row: int | None = None) -> tuple[Any, ...]:
    """Return where parameters of a unit are, as arguments of its programs that are at home there.

    None over several devices, where an argument for each of them costs more than it saves.
    row: of a bundle, where the only parameter is that is stepped.
    """
    places = spec.places(row)
    if not isinstance(home, jax.sharding.SingleDeviceSharding | None):
        return () if row is None else places
    with jax.ensure_compile_time_eval():
        return tuple(own_array(place, home) for place in places)


def called(job: Job, what: str, give_state: bool = False, give_params: bool = False) -> Any:
    """Call a program with a job's arrays; mend what only the call itself can notice."""
    program, cut = program_for(what, job.spec, job.in_rows, give_state, give_params), "step" in what
    with context_of(job):
        try:
            return concretely(program, *arguments(job, cut))
        except jax.errors.JaxRuntimeError as error:
            if "donate" not in str(error) or not (give_state or give_params):
                raise
            # Two arrays are one buffer, as after jax.device_put; XLA notices before it begins.
            program = program_for(what, job.spec, job.in_rows)
        except ValueError as error:
            if not _is_of_devices(error):
                raise
            _bring_home(job)  # asking each array for its device in every step would cost more
        return concretely(program, *arguments(job, cut))


def _is_of_devices(error: ValueError) -> bool:
    return "incompatible devices" in str(error)


def _bring_home(job: Job) -> None:
    """Move gradients to where their parameters are, and a unit's state along."""
    homes = list(map(_home, job.xs))
    grads = tuple(tuple(map(jax.device_put, gs, homes)) for gs in job.given.grads)
    job.given = job.given._replace(grads=grads)
    if len(homes[0].device_set) == 1:
        job.hyper, job.rest = jax.device_put((job.hyper, job.rest), homes[0])


def _home(x: Any) -> Any:
    return getattr(x, "sharding", None)


def kept_home(job: Job, rest: list[Any], params: Any) -> tuple[list[Any], Any]:
    """Move results back to where the parameters were, if a gradient drew them elsewhere."""
    asked = job.xs[:1] if job.spec.packed else job.xs
    pairs = zip(params, asked, strict=False)
    if all(_home(old) in (None, x.sharding) for x, old in pairs):
        return rest, params
    homes = list(map(_home, job.xs))
    params = tuple(map(jax.device_put, params, homes))
    if len(homes[0].device_set) == 1:
        rest = jax.device_put(rest, homes[0])
    return rest, params


def _home_of(job: Job) -> Any:
    """Return where a job's arguments must be; None if JAX puts them there by itself."""
    if job.host:
        elsewhere = jax.default_backend() != "cpu"
        return jax.sharding.SingleDeviceSharding(cpu()) if elsewhere else None
    x = job.xs[0]
    return x.sharding if isinstance(x, jax.Array) and x.committed else None


def context_of(job: Job) -> ExitStack:
    """Return the context of a job's program: 64-bit mode, and the CPU for host memory."""
    stack = ExitStack()
    if job.spec.wide:
        stack.enter_context(precision(True))
    if job.host and jax.default_backend() != "cpu":
        stack.enter_context(on_cpu())
    return stack


@functools.lru_cache(maxsize=4096)
def program_for(
    what: str, spec: Spec, in_rows: bool, give_state: bool = False, give_params: bool = False
) -> Any:
    """Return the compiled function for a spec, of `arguments`; it holds nothing but static data."""
    function = functools.partial(_BODIES[what], spec, in_rows)
    return jax.jit(function, donate_argnums=(1,) * give_state + (2,) * give_params)


def stepped(spec: Spec, in_rows: bool, *args: Any, steps: bool = False) -> tuple[list[Any], Any]:
    """Take a step with the arguments of a program: what is carried on, and parameters or steps."""
    hyper, carried, xs, given = opened_arguments(spec, *args)
    if not in_rows:
        check_fit(spec, hyper, xs, given.grads)
    step = step_rows if in_rows else step_unit
    out = step(spec, hyper, carried, xs, given, steps)
    return flat(spec, out.carried), out.params


def _checked(spec: Spec, in_rows: bool, *args: Any) -> Any:
    step = step_rows if in_rows else step_unit
    return step(spec, *opened_arguments(spec, *args)).checks


def asked(spec: Spec, in_rows: bool, *args: Any) -> Any:
    """Return the answer to a question, and of a pack the gradients in rows.

    In rows, they are one argument of the programs to come.
    """
    hyper, carried, xs, given = opened_arguments(spec, *args)
    loose = spec.packed and not in_rows
    given = given._replace(grads=rows_of(spec, given.grads)) if loose else given
    ask = ask_rows if in_rows else ask_unit
    return ask(spec, hyper, carried, xs, given), given.grads if loose else None


_BODIES: dict[str, Any] = {
    "step": stepped,
    "steps": functools.partial(stepped, steps=True),
    "check": _checked,
    "ask": asked,
}


def opened_arguments(
    spec: Spec, hyper: Any, rest: Any, xs: Any, grads: Any, begins: Any, present: Any = None,
    live: Any = None, answers: Any = (),
) -> tuple[Any, Carried, Any, Given]:  # fmt: skip
    """Give `arguments` their names again; True says "all", where no masks came."""
    present, live = (True if mask is None else mask for mask in (present, live))
    return hyper, opened(spec, rest), xs, Given(grads, present, live, answers, begins)


@functools.lru_cache(maxsize=256)
def joint_question(specs: tuple[Spec, ...], how: How) -> Any:
    """Return the compiled function in which several units answer what all of them are asked."""

    def all_asked(units: Any) -> Any:
        found = [asked(spec, False, *args) for spec, args in zip(specs, units, strict=True)]
        return combined([answer for answer, _ in found], how), [grads for _, grads in found]

    return jax.jit(all_asked)


def rehearse(jobs: Sequence[Job]) -> None:
    """Trace programs that have never run, so that a rule that raises does before others have run.

    What is traced here is not traced again.
    """
    for job in jobs:
        program = program_for("step", job.spec, job.in_rows, job.give_state, job.give_params)
        if not program._cache_size():
            with context_of(job):
                program.eval_shape(*arguments(job))


def keep_shared(jobs: Sequence[Job], leaves: Sequence[Any]) -> None:
    """Give away no parameter whose buffer another array has: jax.device_put makes such arrays."""
    giving = [job for job in jobs if job.give_params]
    grads = (g for job in giving for gs in job.given.grads for g in gs)
    arrays = {id(x): x for x in (*leaves, *grads) if isinstance(x, jax.Array) and x.size}
    owners = Counter(map(_buffer, arrays.values()))
    for job in giving:
        job.give_params = all(owners[_buffer(x)] == 1 for x in job.xs if x.size)


def _buffer(x: Any) -> Any:
    try:
        return x.unsafe_buffer_pointer()
    except (AttributeError, TypeError, ValueError, RuntimeError):  # keys; several devices
        return id(x), "object"
