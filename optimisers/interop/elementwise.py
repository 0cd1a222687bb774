"""Whether a transformation treats each element of a parameter by itself, whatever the shape is.

Asked of a program traced with sizes that are symbols: what compares one with a number cannot be
traced so, and what computes with one shows it. Only an equation of a size with a number, which is
false of a symbol, and the number of dimensions are not seen. Therefore the program is written down
without its shapes, for parameters of any other shape to be compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .programs import Program, is_literal, programs_in
from .reader import content

# What computes each element of its result from that element of its arguments alone.
EACH = frozenset({
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "cbrt", "ceil", "clamp", "complex", "conj", "convert_element_type", "copy", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max",
    "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow", "real", "reduce_precision", "rem",
    "round", "rsqrt", "select_n", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub",
    "tan", "tanh", "xor",
})  # fmt: skip
AROUND = frozenset({"cond", "custom_jvp_call", "custom_vjp_call", "closed_call", "jit", "remat2"})


def is_elementwise(program: Program, shape: tuple[Any, ...]) -> bool:
    """Tell whether the program of parameters of a shape of symbols is elementwise."""
    parts = program.init, program.update
    return all(
        all(aval.shape in ((), shape) for aval in part.out_avals)
        and all(_is_apart(eqn, shape) for eqn in _equations(part.jaxpr))
        for part in parts
    )


def text(program: Program) -> Any:
    """Write a program without its shapes: equal ones do the same to each element."""
    return _text(program.init.jaxpr, program.init.consts), _text(
        program.update.jaxpr, program.update.consts
    )


def _equations(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield eqn
        for inner, _ in programs_in(eqn.params):
            yield from _equations(inner)


def _is_apart(eqn: Any, shape: tuple[Any, ...]) -> bool:
    """Tell whether an equation leaves each element of arrays of this shape to itself."""
    shapes = [v.aval.shape for v in (*eqn.invars, *eqn.outvars)]
    if not any(isinstance(size, type(shape[0])) for found in shapes for size in found):
        return True  # it has to do with no element at all: counts, rates
    if any(found not in ((), shape) for found in shapes):
        return False
    name = eqn.primitive.name
    if name == "broadcast_in_dim":
        return bool(eqn.invars[0].aval.shape == ())
    return name in EACH or name in AROUND


def _text(jaxpr: Any, consts: Any) -> Any:
    """Write a program's equations; what is only spread out counts as it was."""
    names: dict[Any, Any] = {v: i for i, v in enumerate(jaxpr.invars)}
    names.update(zip(jaxpr.constvars, map(content, consts), strict=True))

    def at(v: Any) -> Any:
        return content(v.val) if is_literal(v) else names[v]

    lines = []
    for eqn in jaxpr.eqns:
        ins = tuple(map(at, eqn.invars))
        if eqn.primitive.name == "broadcast_in_dim" and eqn.invars[0].aval.shape == ():
            names[eqn.outvars[0]] = ins[0]
            continue
        inner = programs_in(eqn.params)
        static = () if inner else tuple((k, str(v)) for k, v in sorted(eqn.params.items()))
        lines.append((eqn.primitive.name, static, ins, tuple(_text(*each) for each in inner)))
        names.update((v, (len(lines), i)) for i, v in enumerate(eqn.outvars))
    return tuple(lines), tuple(map(at, jaxpr.outvars))
