"""Parameters grouped into units, and the first arrays of each unit."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays.numbers import is_wide, precision, scalar_dtype, x64_enabled
from ..arrays.ops import concretely, cpu, on_cpu, own_array
from ..arrays.sharding import alike
from ..errors import DtypeError
from ..rules.checks import narrowed
from ..rules.fields import Template, numbers_of, template_of
from ..rules.rule import Rule
from .carried import Carried, flat
from .kernel import init_unit
from .layout import Param, Place, Unit
from .spec import Form, Spec, form_of, spec_of, struct_of

SMALL = 80 * 80  # elements; copying more into a pack costs more than a result of its own
FEW = 12  # so many of them cost less beside larger ones than in a program of their own
PACK_SIZES = range(24, 151)
BUNDLE, LITTLE_BUNDLE = 16, 64
BIG_BUNDLE = 2**25  # elements: a program that needs much memory at once gains nothing from company


class Group(NamedTuple):
    """What parameters of one unit have in common; `form` is None in a pack."""

    template: Template
    dtype: str
    host: bool
    place: Place
    packed: bool
    form: Form | None


def grouped(
    params: Sequence[Param],
    rules: Sequence[Rule],
    weak: Sequence[bool],
    hosts: Sequence[bool],
    places: Sequence[Place],
) -> tuple[Unit, ...]:
    """Group parameters that can share a program: same template, dtype, memory and device."""
    groups: dict[Group, list[int]] = {}
    known = {id(rule): template_of(rule) for rule in {id(rule): rule for rule in rules}.values()}
    templates = [known[id(rule)] for rule in rules]
    for i, (param, rule, template) in enumerate(zip(params, rules, templates, strict=True)):
        packed = _is_packed(param, rule, places[i])
        form = None if packed else form_of(template, param.dtype, param.shape)
        key = Group(template, param.dtype, hosts[i], places[i], packed, form)
        groups.setdefault(key, []).append(i)
    _join_few(params, groups)
    units: list[Unit] = []
    for (template, _, host, place, packed, _), members in groups.items():
        # What reaches a program in rows is one argument, however many parameters it is.
        cut = [members] if host and packed else None
        for chosen in cut or (_packs if packed else _bundles)(params, members):
            spec = _spec(params, weak, chosen, template, packed)
            units.append(Unit(spec, tuple(chosen), host, place))
    return tuple(units)


def _join_few(params: Sequence[Param], groups: dict[Group, list[int]]) -> None:
    """Give few small parameters to the bundle of larger ones, if there is one; a lone one its own.

    A program more costs more than their arguments do.
    """
    for key in [key for key in groups if key.packed and not key.host]:
        if len(groups[key]) > FEW:
            continue
        members, groups[key] = groups[key], []
        for i in members:
            form = form_of(key.template, key.dtype, params[i].shape)
            bundle = key._replace(packed=False, form=form)
            joins = bundle in groups or len(members) == 1
            groups.setdefault(bundle if joins else key, []).append(i)
    for key in [key for key in groups if not groups[key]]:
        del groups[key]
    for members in groups.values():
        members.sort()


def _is_packed(param: Param, rule: Rule, place: Place) -> bool:
    small = math.prod(param.shape) <= SMALL
    return small and not place.sharded and rule.packs(param.shape, param.dtype)


def _spec(
    params: Sequence[Param],
    weak: Sequence[bool],
    chosen: Sequence[int],
    template: Template,
    packed: bool,
) -> Spec:
    shapes = tuple(params[i].shape for i in chosen)
    flags = tuple(weak[i] for i in chosen)
    return spec_of(template, shapes, params[chosen[0]].dtype, flags, packed)


def _packs(params: Sequence[Param], members: Sequence[int]) -> list[list[int]]:
    """Cut small parameters into packs, in the order and size that give the fewest programs.

    A program is one sequence of shapes. A model of repeated blocks repeats its shapes in its own
    order; one of few shapes in any order repeats them when sorted.
    """
    cuts = (
        [order[j : j + size] for j in range(0, len(order), size)]
        for order in _orders(params, members)
        for size in PACK_SIZES
        if size < len(order) + PACK_SIZES[0]
    )
    return min(cuts, key=lambda packs: (len(_programs(params, packs)), len(packs)))


def _bundles(params: Sequence[Param], members: Sequence[int]) -> list[list[int]]:
    """Cut parameters into bundles, in the order that gives the fewest kernels to compile.

    A program has its kernels once for each shape in it, whatever other programs have.
    """
    cuts = (_in_bundles(params, order) for order in _orders(params, members))
    return min(cuts, key=lambda found: sum(len(set(p)) for p in _programs(params, found)))


def _orders(params: Sequence[Param], members: Sequence[int]) -> tuple[list[int], list[int]]:
    return list(members), sorted(members, key=lambda i: (params[i].shape, i))


def _programs(params: Sequence[Param], cut: Sequence[Sequence[int]]) -> set[tuple[Any, ...]]:
    """Return what there is to compile for parameters cut into units: sequences of shapes."""
    return {tuple(params[i].shape for i in chosen) for chosen in cut}


def _in_bundles(params: Sequence[Param], members: Sequence[int]) -> list[list[int]]:
    """Cut parameters into bundles, fewer of them where they are large."""
    bundles: list[list[int]] = [[]]
    elements = 0
    for i in members:
        size = math.prod(params[i].shape)
        most = LITTLE_BUNDLE if size <= SMALL else BUNDLE
        if bundles[-1] and (len(bundles[-1]) >= most or elements + size > BIG_BUNDLE):
            bundles.append([])
            elements = 0
        bundles[-1].append(i)
        elements += size
    return bundles


def hyper_table(unit: Unit, rules: Sequence[Rule] | Mapping[int, Rule]) -> Any:
    """Return the hyper-parameters of a unit's rules, [k, width].

    Values that are tracers give a traced table; otherwise it is a NumPy array.
    """
    rows = [numbers_of(rules[i]) for i in unit.params]
    dtype = scalar_dtype(unit.spec.dtype)
    traced = any(isinstance(v, jax.Array) for row in rows for v in row)
    with precision(unit.spec.wide):
        make: Callable[[Any], Any] = (
            functools.partial(_stacked, dtype)
            if traced
            else functools.partial(narrowed, unit.spec.template, dtype=dtype)
        )
        return make(rows)


def _stacked(dtype: Any, table: Any) -> Any:
    if table and isinstance(table[0], list):
        return jnp.stack([_stacked(dtype, row) for row in table])
    return jnp.stack([jnp.asarray(v, dtype=dtype) for v in table])


def first_arrays(unit: Unit, hyper: Any, xs: Sequence[Any], traced: bool) -> list[Any]:
    """Return all arrays of a fresh unit: hyper-parameters, scalar tables, moments."""
    spec = unit.spec
    if traced:
        carried = _cut_in_program(unit, xs, init_unit(spec, hyper, xs))
    else:
        with precision(spec.wide):
            carried = concretely(_init(spec, _cut_like(unit, xs)), hyper, xs)
    return stored(unit, [hyper, *flat(spec, carried)], traced)


def _cut_like(unit: Unit, xs: Sequence[Any]) -> Carried | None:
    """Return where the state of sharded parameters belongs: beside them, in the same pieces."""
    if not unit.place.sharded:
        return None
    spec = unit.spec
    moments = []
    for x, shape in zip(xs, spec.shapes, strict=True):
        leaves = jax.tree.leaves(struct_of(spec.template, spec.dtype, shape))
        slots = zip(leaves, spec.form.slots, strict=True)
        moments.append(
            tuple(
                x.sharding if s.shape == shape else None for s, slot in slots if slot.table is None
            )
        )
    return Carried((None,) * len(spec.form.tables), tuple(moments))


def _cut_in_program(unit: Unit, xs: Sequence[Any], carried: Carried) -> Carried:
    """Have the compiler put the state of parameters that may be sharded beside them."""
    if not unit.place.sharded:
        return carried
    moments = tuple(
        tuple(alike(x, m) if m.shape == x.shape else m for m in arrays)
        for x, arrays in zip(xs, carried.moments, strict=True)
    )
    return carried._replace(moments=moments)


@functools.lru_cache(maxsize=1024)
def _init(spec: Spec, where: Carried | None) -> Any:
    # Arrays whose values do not matter still say where the program runs.
    return jax.jit(functools.partial(init_unit, spec), out_shardings=where, keep_unused=True)


def stored(unit: Unit, arrays: list[Any], traced: bool) -> list[Any]:
    """Return arrays in the form in which a state holds them between steps.

    64-bit state is held by NumPy while x64 is off, as JAX would narrow it at every turn.
    """
    if traced:
        return arrays
    if unit.spec.wide and not x64_enabled():
        return [np.asarray(a) for a in arrays]
    # Also within somebody's trace: what is concrete stays so.
    with jax.ensure_compile_time_eval(), on_cpu() if unit.host else nullcontext():
        home = _home() if unit.host else None
        return [a if isinstance(a, jax.Array) else own_array(a, home) for a in arrays]


def _home() -> Any:
    """Return where host units' tables live: committed only where the default is elsewhere."""
    return None if jax.default_backend() == "cpu" else cpu()


def check_dtype(dtype: Any, code: str) -> None:
    """Raise for floating dtypes that JAX cannot compute."""
    if str(dtype) in ("longdouble", "float128", "complex256", "clongdouble"):
        raise DtypeError(
            f"cannot train {code}: JAX has no dtype {dtype}; use float64 or complex128"
        )


__all__ = ["check_dtype", "first_arrays", "grouped", "hyper_table", "is_wide", "stored"]
