"""Races of rules: their paths over functions of two numbers, and pictures of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .api.adjust import adjust
from .api.setup import setup
from .api.update import update
from .arrays.needs import need
from .errors import RuleError
from .rules import Rule
from .rules.checks import names_of

# The rates that are tried, the value below which a function counts as done, how far from
# their middle pictures go.
RATES = tuple(float(f"{rate:.2g}") for rate in np.geomspace(1e-4, 3.0, 40))
DONE = 1e-10
EDGES = (2.0, 1.5)
# Readable on white, and apart for readers who see fewer colours.
COLOURS = ("#0b62a4", "#c8511b", "#1b7f4b", "#8a3ea8", "#9a7300", "#b3273f", "#3c4a5a", "#0a8a94")


class Course(NamedTuple):
    """A function of two numbers whose least value is 0, where a race begins, what pictures show."""

    value: Callable[[Any], Any]
    start: tuple[float, float]
    bottoms: tuple[tuple[float, float], ...]
    middle: tuple[float, float] = (0.0, 0.0)


class Lap(NamedTuple):
    """One rule's way: the points [steps + 1, 2] and the values there, the start first."""

    rule: Rule
    points: Any
    values: Any


COURSES = {
    "rosenbrock": Course(
        lambda p: (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2,
        (-1.2, 1.0),
        ((1.0, 1.0),),
        (0.0, 0.8),
    ),
    "valley": Course(lambda p: 0.5 * (p[0] ** 2 + 50 * p[1] ** 2), (-1.8, 1.0), ((0.0, 0.0),)),
    "saddle": Course(
        lambda p: 0.5 * p[0] ** 2 + 0.25 * (p[1] ** 2 - 1) ** 2,
        (-1.6, 0.01),
        ((0.0, 1.0), (0.0, -1.0)),
    ),
}


def race(rule: Rule, on: str = "valley", steps: int = 150, *, tuned: bool = False) -> Lap:
    """Take so many steps over a test function, in 32 bits.

    Args:
        rule: the rule; it is not changed.
        on: "rosenbrock" (a curved valley), "valley" (fifty times as steep across as along) or
            "saddle" (flat where the two ways down part).
        steps: how many, at least 1.
        tuned: whether `eta` is the best of `RATES`, which then run at once, under `jax.vmap`: the
            one whose values have the least mean logarithm and whose way stays in the picture. A
            rule without a learning rate runs as it stands.

    Returns:
        A `Lap`: rule, points float32 [steps + 1, 2], values float32 [steps + 1], unitless.

    Raises:
        ValueError: there is no such function, or no step to take.
        RuleError: tuned, and no rate stays in the picture.

    Examples:
        >>> from optimisers import Momentum
        >>> lap = race(Momentum(0.01), on="valley", steps=300)
        >>> bool(lap.values[-1] < 1e-6)
        True
        >>> bool(0.02 < race(Momentum(rho=0.0), tuned=True).rule.eta < 0.04)
        True
    """
    if on not in COURSES or steps < 1:
        what = f"no function {on!r}" if on not in COURSES else f"no race of {steps} steps"
        raise ValueError(f"there is {what}; expected one of {', '.join(COURSES)}, and steps >= 1")
    course = list(COURSES).index(on), jnp.array(COURSES[on].start, jnp.float32)
    if not tuned or "eta" not in names_of(rule):
        return Lap(rule, *map(np.asarray, _program(rule, steps)(*course)))
    rates = jnp.array(RATES, jnp.float32)
    points, values = map(np.asarray, _program(rule, steps, tuned=True)(*course, rates))
    inside = (np.abs(points - np.array(COURSES[on].middle)) <= np.array(EDGES)).all(axis=(1, 2))
    if not inside.any():
        raise RuleError(f"{rule} leaves the picture of {on!r} at each of {len(RATES)} rates")
    score = np.log(np.maximum(values, DONE)).mean(axis=1)
    first = int(np.argmin(np.where(inside, score, np.inf)))
    return Lap(rule.adjust(eta=RATES[first]), points[first], values[first])


@functools.lru_cache(maxsize=32)
def _program(rule: Rule, steps: int, *, tuned: bool = False) -> Callable[..., Any]:
    """Return a function of a course's number, its start, and rates if tuned: points and values."""
    functions = [course.value for course in COURSES.values()]

    def way(course: Any, start: Any, eta: Any = None) -> Any:
        def value(point: Any) -> Any:
            # A switch: one program, which is what takes the time, for all courses.
            return jax.lax.switch(course, functions, point)

        def step(carry: Any, _: Any) -> Any:
            state, point = carry
            height, slope = jax.value_and_grad(value)(point)
            return update(state, point, slope), (point, height)

        state = setup(rule, start)
        first = (state if eta is None else adjust(state, eta)), start
        (_, last), (points, values) = jax.lax.scan(step, first, length=steps)
        return jnp.vstack([points, last]), jnp.append(values, value(last))

    return jax.jit(jax.vmap(way, in_axes=(None, None, 0)) if tuned else way)


def draw(laps: Mapping[str, Sequence[Lap]], file: Path) -> None:
    """Draw races into a file: for each function the paths, and below them the values.

    Args:
        laps: the laps of each test function, by its name.
        file: what is written; its suffix says in which format.

    Returns:
        None.

    Raises:
        MissingLibraryError: matplotlib is not installed.
        ValueError: the suffix is of no format that matplotlib writes.
    """
    pictured(laps).savefig(file, dpi=150)


def pictured(laps: Mapping[str, Sequence[Lap]], ink: str = "#333333") -> Any:
    """Return the figure of races: paths above, values below, a column for each function."""
    figure = new_figure(3.6 * len(laps), 5.6)
    rows = figure.subplots(2, len(laps), squeeze=False, height_ratios=[5, 4])
    for column, (on, ways) in enumerate(laps.items()):
        path, curve = rows[0][column], rows[1][column]
        draw_course(path, on, ink)
        for lap, colour in zip(ways, COLOURS, strict=False):
            draw_path(path, lap, colour)
            curve.semilogy(np.maximum(lap.values, DONE), color=colour, label=label(lap.rule))
        high = (2 * float(v) for lap in ways for v in lap.values if np.isfinite(v))
        curve.set(xlabel="step", ylim=(DONE / 2, max([1e3, *high])))
        curve.set_ylabel("value" if column == 0 else "")
        curve.legend(fontsize=7, frameon=False)
        _plain(curve)
    return figure


def draw_course(axes: Any, on: str, ink: str = "#333333") -> None:
    """Draw the lines of equal value of a test function, its start and its lowest points."""
    course = COURSES[on]
    (left, right), (low, high) = ((c - e, c + e) for c, e in zip(course.middle, EDGES, strict=True))
    x, y = np.meshgrid(np.linspace(left, right, 81), np.linspace(low, high, 61))
    heights = np.asarray(course.value(jnp.array([x, y], jnp.float32)))
    axes.contour(x, y, heights, np.geomspace(1e-2, 1e3, 16), colors=ink, linewidths=0.5, alpha=0.4)
    axes.plot(*course.start, "o", color=ink, markersize=4)
    for bottom in course.bottoms:
        axes.plot(*bottom, "*", color=ink, markersize=8, zorder=3)  # where paths end, on top
    axes.set(xlim=(left, right), ylim=(low, high), xticks=[], yticks=[], aspect="equal", title=on)


def draw_path(axes: Any, lap: Lap, colour: str, **style: Any) -> None:
    """Draw the way of one rule."""
    axes.plot(*lap.points.T, color=colour, **{"linewidth": 1.3, "markersize": 2, **style})


def label(rule: Rule) -> str:
    """Return a short name of a rule: its class and its learning rate."""
    eta = getattr(rule, "eta", None)
    return type(rule).__name__ + (f", eta {eta:.2g}" if isinstance(eta, float) else "")


def draw_curves(axes: Any, curves: Mapping[str, Any], **settings: Any) -> None:
    """Draw one line of x and y for each name."""
    for (name, (x, y)), colour in zip(curves.items(), COLOURS, strict=False):
        axes.plot(x, y, color=colour, label=name)
    axes.set(**settings)
    axes.legend(fontsize=8, frameon=False)
    _plain(axes)


def new_figure(width: float, height: float) -> Any:
    """Return a figure of matplotlib, in inches, with its parts laid out."""
    # Not through pyplot, which would look for a screen and keep the figure alive.
    return need("matplotlib.figure", "draw").Figure((width, height), layout="constrained")


def check_file(file: Path) -> None:
    """Raise ValueError where no picture can be written, before minutes are spent on a training."""
    kinds = sorted(new_figure(1, 1).canvas.get_supported_filetypes())
    if file.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(f"cannot draw to {str(file)!r}: its name must end in .{', .'.join(kinds)}")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"cannot draw to {str(file)!r}: there is no folder {str(file.parent)!r}")
    if file.is_dir():
        raise ValueError(f"cannot draw to {str(file)!r}: it is a folder")


def _plain(axes: Any) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


__all__ = ["COURSES", "Course", "Lap", "draw", "race"]
