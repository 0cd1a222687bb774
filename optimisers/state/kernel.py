"""What happens to one unit in one step, as pure functions that can be compiled or inlined.

A pack is computed in rows: small parameters, flattened, padded and stacked to `[rows, WIDTH]`, with
the rule mapped over the rows. A bundle is computed one array after another. Both run `_run`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.numbers import compute_dtype, fits, precision, scalar_dtype, standard_promotion
from ..errors import RuleTypeError
from ..rules.across import REDUCE, Question, Replay, combined, reduced
from ..rules.fields import rebuild
from ..rules.rule import Flow, both, hold, start
from .carried import Carried
from .spec import WIDTH, Spec

ZERO = np.uint32(0)  # unsigned, as JAX counts signed ones from the end where they are negative


class Given(NamedTuple):
    """What one step is given: gradients per order, and which parameters have one (True: all).

    live: which parameters may move at all; the others are frozen.
    answers: reductions known from earlier runs.
    begins: of a pack, the first row of every parameter, or of some of them (see `unpack`); of a
    bundle, the row of each of its parameters in the tables. Empty where they are not arguments.
    """

    grads: tuple[Any, ...]
    present: Any = True
    live: Any = True
    answers: tuple[Any, ...] = ()
    begins: tuple[Any, ...] = ()


class Unfit(ValueError):
    """A program was given arrays that are not what its spec says; raised while it is traced."""


class Outcome(NamedTuple):
    """What one step gives: the next state, the parameters, and the checks of `across.require`."""

    carried: Carried
    params: Any
    checks: tuple[Any, ...] = ()


def _run(
    spec: Spec, numbers: Any, scalars: Any, moments: Any, x: Any, given: Given, replay: Replay,
    steps: bool = False,
) -> tuple[Any, Any, Any, tuple[Any, ...]]:  # fmt: skip
    """Run the rule on one array (or one row of a pack): next tables, arrays, parameter, checks.

    steps: return what is subtracted, as wide as it is computed, in place of the parameter.
    """
    dtype = compute_dtype(spec.dtype)
    rule = rebuild(spec.template, [numbers[i] for i in range(spec.template.width)])
    count, state = spec.form.join(scalars, moments)
    grads = [_gradient(g, dtype, given.present) for g in given.grads]
    flow = Flow(
        grads[0], tuple(grads[1:]), given.present, None, replay, np.dtype(spec.dtype), count=count
    )
    wide = x.astype(dtype)
    new, flow = rule.advance(state, wide, flow)
    # Before the subtraction, which would broadcast, or complain in JAX's words.
    _check_shapes(spec, (flow.dx if flow.value is None else flow.value,), (x,))
    value = wide - flow.dx.astype(dtype) if flow.value is None else flow.value
    if steps:
        x = jnp.zeros_like(wide)
        moved = hold(flow.run, flow.dx if flow.value is None else wide - value.astype(dtype), x)
    else:
        moved = hold(flow.run, value.astype(x.dtype), x)
    tables, arrays = spec.form.split((hold(flow.run, count + 1, count), new), spec.rule_name)
    _check_shapes(spec, (*arrays, moved), (*moments, x))
    if given.live is not True:
        tables = hold(given.live, tables, scalars)
        arrays, moved = hold(given.live, arrays, moments), hold(given.live, moved, x)
    return tables, arrays, moved, tuple(jnp.asarray(ok) for ok, _ in replay.required)


def _check_shapes(spec: Spec, new: Sequence[Any], old: Sequence[Any]) -> None:
    """Raise, when a program is traced, where a rule returns a state or step of another shape."""
    for a, b in zip(new, old, strict=True):
        if jnp.shape(a) != jnp.shape(b):
            what = "step" if a is new[-1] else "state"
            raise RuleTypeError(
                f"{spec.rule_name}.apply returned a {what} that turns shape {list(jnp.shape(b))} "
                f"into {list(jnp.shape(a))}"
            )


def _gradient(g: Any, dtype: Any, present: Any) -> Any:
    g = g.astype(dtype)
    return g if present is True else jnp.where(present, g, 0)


def check_fit(spec: Spec, hyper: Any, xs: Sequence[Any], grads: Sequence[Sequence[Any]]) -> None:
    """Refuse arrays of another shape than the spec's, and gradients that are no numbers for it.

    Callers check first and say more; where only one program runs, this is the check, once compiled.
    """
    shapes, (rows, *width) = list(spec.shapes), jnp.shape(hyper)
    # A parameter of a bundle that is stepped alone comes with everybody's rows.
    if width != [spec.template.width] or (rows != len(shapes) and len(shapes) > 1):
        raise Unfit
    loose = [gs for gs in grads if isinstance(gs, tuple)]  # not in rows, by a question before
    if any(list(map(jnp.shape, some)) != shapes for some in (xs, *loose)):
        raise Unfit
    given = {g.dtype for gs in loose for g in gs}
    if {str(x.dtype) for x in xs} != {spec.dtype} or not all(fits(g, spec.dtype) for g in given):
        raise Unfit


def step_unit(
    spec: Spec, hyper: Any, carried: Carried, xs: Any, given: Given, steps: bool = False
) -> Outcome:
    """Take one step with a whole unit; parameters and gradients as tuples of arrays."""
    with precision(spec.wide), standard_promotion(spec.dtype):
        if not spec.packed:
            given = _answered(spec, hyper, carried, xs, given, ask_unit)
            return _step_bundle(spec, hyper, carried, xs, given, steps)
        given = given._replace(grads=in_rows(spec, given.grads))
        out = step_rows(spec, hyper, carried, pack(spec, xs), given, steps)
        params = unpack(spec, out.params, None if steps else xs, given.begins)
        return out._replace(params=params)


def step_rows(
    spec: Spec, hyper: Any, carried: Carried, rows: Any, given: Given, steps: bool = False
) -> Outcome:
    """Take one step with a pack that is in rows already."""
    with precision(spec.wide), standard_promotion(spec.dtype):
        given = _answered(spec, hyper, carried, rows, given, ask_rows)
        tables, arrays, moved, checks = _over_rows(
            spec, hyper, carried, rows, given, functools.partial(_run, spec, steps=steps)
        )
        first = spec.first
        scalars = tuple(table[first] for table in tables)
        return Outcome(Carried(scalars, arrays), moved, tuple(c[first] for c in checks))


def _answered(
    spec: Spec, hyper: Any, carried: Carried, xs: Any, given: Given, ask: Callable[..., Any]
) -> Given:
    """Answer the questions that nobody else is asked, and so were left to this program."""
    while len(given.answers) < len(spec.asks):
        answer = ask(spec, hyper, carried, xs, given)
        given = given._replace(answers=(*given.answers, answer))
    return given


def _step_bundle(
    spec: Spec, hyper: Any, carried: Carried, xs: Any, given: Given, steps: bool
) -> Outcome:
    outs = []
    for i, x in enumerate(xs):
        mine = _only(given, i)
        replay = Replay(given.answers, mask=mine.live)
        args = (*_row(hyper, carried, given, i), carried.moments[i], x, mine, replay)
        outs.append(_run(spec, *args, steps=steps))
    rows, arrays, moved, checks = zip(*outs, strict=True)
    if not steps:
        moved = tuple(_as_weak(y, x, weak) for y, x, weak in zip(moved, xs, spec.weak, strict=True))
    carried = Carried(_with_rows(carried.scalars, rows, given), arrays)
    return Outcome(carried, moved, tuple(map(jnp.stack, zip(*checks, strict=True))))


def _row(hyper: Any, carried: Carried, given: Given, i: int) -> tuple[Any, tuple[Any, ...]]:
    """Return the hyper-parameters and scalars of a parameter of a bundle.

    Where its row is an argument, the kernels of parameters of one shape are one (see `unpack`).
    """
    tables = (hyper, *carried.scalars)
    if given.begins:
        at = given.begins[i]
        slices = (jax.lax.dynamic_slice(t, (at, ZERO), (1, t.shape[1])) for t in tables)
        row, *scalars = (s[0] for s in slices)
    else:
        row, *scalars = (t[i] for t in tables)
    return row, tuple(scalars)


def _with_rows(tables: Any, rows: Sequence[Any], given: Given) -> tuple[Any, ...]:
    """Return the scalar tables of a bundle with new rows for the parameters that were stepped."""
    columns = zip(*rows, strict=True)
    if len(rows) == len(tables[0]):
        return tuple(map(jnp.stack, columns))
    ((at,), (new,)) = given.begins, rows
    put = jax.lax.dynamic_update_slice
    return tuple(put(t, row[None], (at, ZERO)) for t, row in zip(tables, new, strict=True))


def _only(given: Given, i: int) -> Given:
    return Given(
        tuple(g[i] for g in given.grads),
        given.present if given.present is True else given.present[i],
        given.live if given.live is True else given.live[i],
    )


def _over_rows(
    spec: Spec, hyper: Any, carried: Carried, rows: Any, given: Given, run: Callable[..., Any]
) -> Any:
    """Map `run` over the rows of a pack, each with the tables' rows of its own parameter."""
    owner = spec.owner
    spread = jax.tree.map(lambda a: a[owner] if jnp.ndim(a) else a, given.answers)
    present = given.present if given.present is True else given.present[owner]
    live = given.live if given.live is True else given.live[owner]
    inside = _inside(spec) if spec.asks else None

    def one(h: Any, s: Any, m: Any, x: Any, gs: Any, p: Any, ok: Any, a: Any, real: Any) -> Any:
        replay = Replay(a, whole=False, mask=True if real is None else both(real, ok))
        return run(h, s, m, x, Given(gs, p, ok, ()), replay)

    axes = [None if x is True or x is None else 0 for x in (present, live, inside)]
    by = jax.tree.map(lambda a: 0 if jnp.ndim(a) else None, spread)
    mapped = jax.vmap(one, (0, 0, 0, 0, 0, axes[0], axes[1], by, axes[2]))
    tables = tuple(table[owner] for table in carried.scalars)
    args = (hyper[owner], tables, carried.moments, rows, given.grads)
    return mapped(*args, present, live, spread, inside)


def ask_unit(spec: Spec, hyper: Any, carried: Carried, xs: Any, given: Given) -> Any:
    """Answer the next question of a unit: [k], or a scalar where it is the model's."""
    with precision(spec.wide), standard_promotion(spec.dtype):
        if spec.packed:
            given = given._replace(grads=in_rows(spec, given.grads))
            return ask_rows(spec, hyper, carried, pack(spec, xs), given)
        ask = spec.asks[len(given.answers)]
        parts = []
        for i, x in enumerate(xs):
            mine = _only(given, i)
            replay = Replay(given.answers, mask=mine.live)
            args = (*_row(hyper, carried, given, i), carried.moments[i], x, mine, replay)
            parts.append(reduced(_question(spec, *args), ask.how))
        return _in_tables(spec, combined(parts, ask.how))


def ask_rows(spec: Spec, hyper: Any, carried: Carried, rows: Any, given: Given) -> Any:
    """Answer the next question of a pack that is in rows already."""
    with precision(spec.wide), standard_promotion(spec.dtype):
        ask = spec.asks[len(given.answers)]
        values = _over_rows(spec, hyper, carried, rows, given, lambda *args: _question(spec, *args))
        if ask.scope == "model":
            return _in_tables(spec, reduced(values, ask.how))

        def of_each(v: Any, how: str) -> Any:
            segments = getattr(jax.ops, f"segment_{how}")
            each = REDUCE[how](v, axis=1)
            return segments(each, spec.owner, len(spec.shapes), indices_are_sorted=True)

        return _in_tables(spec, reduced(values, ask.how, of_each))


def _in_tables(spec: Spec, answer: Any) -> Any:
    """Return an answer in the dtype of the numbers beside the parameters."""
    return jax.tree.map(lambda a: a.astype(scalar_dtype(spec.dtype)), answer)


def _question(spec: Spec, *args: Any) -> Any:
    """Run the rule up to the first question without an answer; return what is to be reduced."""
    try:
        _run(spec, *args)
    except Question as question:
        return jnp.broadcast_to(question.values, args[3].shape)
    raise AssertionError(f"{spec.rule_name} asked for a reduction once, and not again")


def _inside(spec: Spec) -> Any:
    """Tell for each element of a pack whether it belongs to a parameter or is padding."""
    sizes = np.array([math.prod(shape) for shape in spec.shapes])
    left = sizes[spec.owner] - (np.arange(len(spec.owner)) - spec.first[spec.owner]) * WIDTH
    return jnp.arange(WIDTH, dtype=np.int32)[None, :] < left.astype(np.int32)[:, None]


def init_unit(spec: Spec, hyper: Any, xs: Any) -> Carried:
    """Return the first state of a unit."""
    dtype = compute_dtype(spec.dtype)

    def one(numbers: Any, x: Any) -> Any:
        rule = rebuild(spec.template, [numbers[i] for i in range(spec.template.width)])
        count = jnp.zeros((), jnp.int32)
        return spec.form.split((count, start(rule, x.astype(dtype))), spec.rule_name)

    with precision(spec.wide), standard_promotion(spec.dtype):
        if spec.packed:
            tables, arrays = jax.vmap(one)(hyper[spec.owner], pack(spec, xs))
            return Carried(tuple(t[spec.first] for t in tables), arrays)
        rows, arrays = zip(*(one(h, x) for h, x in zip(hyper, xs, strict=True)), strict=True)
        return Carried(tuple(map(jnp.stack, zip(*rows, strict=True))), arrays)


def pack(spec: Spec, xs: Sequence[Any]) -> Any:
    """Stack small arrays to rows of WIDTH elements, each array beginning a row."""
    if len({x.dtype for x in xs}) > 1:  # gradients may differ; promoted together, some lose digits
        xs = [x.astype(compute_dtype(spec.dtype)) for x in xs]
    parts = []
    for x, shape, rows in zip(xs, spec.shapes, spec.rows, strict=True):
        flat, size = jnp.reshape(x, (-1,)), math.prod(shape)
        if size != rows * WIDTH:
            flat = jnp.pad(flat, (0, rows * WIDTH - size))
        parts.append(flat.reshape(rows, WIDTH))
    return jnp.concatenate(parts)


def in_rows(spec: Spec, grads: Sequence[Any]) -> tuple[Any, ...]:
    """Return gradients, order by order, in rows, where they are not."""
    return tuple(pack(spec, gs) if isinstance(gs, tuple) else gs for gs in grads)


def unfolded(places: Sequence[Any], table: Any) -> tuple[Any, ...]:
    """Return the begins of a unit inside somebody's program, where they cannot be arguments.

    XLA takes what leaves a conditional for unknown, be it the same either way.
    table: counts of steps.
    """

    def begins() -> tuple[Any, ...]:
        return tuple(map(jnp.asarray, places))

    if not len(places):  # a bundle of one
        return ()
    found: tuple[Any, ...] = jax.lax.cond(table.ravel()[0] >= 0, begins, begins)
    return found


def unpack(
    spec: Spec, rows: Any, like: Sequence[Any] | None = None, begins: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """Cut rows into the arrays that were packed.

    XLA compiles equal kernels once, and two cuts are equal if where they begin is an argument: then
    the 50 cuts of a pack are a few kernels. Counting from one parameter for its neighbours makes
    that a few arguments too (see `Spec.near`). The row of zeros keeps XLA from computing the rule
    again in each of the cuts.
    """
    if begins:
        rows = jnp.concatenate([rows, jnp.zeros((1, WIDTH), rows.dtype)])
    found = []
    for i, (shape, height) in enumerate(zip(spec.shapes, spec.rows, strict=True)):
        first = spec.first[i]
        if begins:
            row = begins[i // spec.near] + np.int32(first - spec.first[i - i % spec.near])
            part = jax.lax.dynamic_slice(rows, (row, np.int32(0)), (height, WIDTH))
        else:
            part = rows[first : first + height]
        x = part.reshape(-1)[: math.prod(shape)].reshape(shape)
        found.append(x if like is None else _as_weak(x, like[i], spec.weak[i]))
    return tuple(found)


def _as_weak(new: Any, old: Any, weak: bool) -> Any:
    """Give a result the weak type of its parameter, without which a `scan` carry would change."""
    return old.at[...].set(new) if weak else new
