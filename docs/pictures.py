"""The pictures of the pages, drawn from the package itself, once on light and once on dark ground.

python docs/pictures.py FOLDER     writes them all, to be looked at
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np

import optimisers
from optimisers import Adam, Descent, Momentum, OptimiserChain, Rule, race
from optimisers.demo.rule_text import FOR_DIGITS, rule_classes

STEPS = 150
# What a modifier is put in front of, or around, to be seen at work; the same without it is grey.
MODIFIED: dict[str, tuple[Rule, Rule]] = {
    "AccumGrad": (OptimiserChain(optimisers.AccumGrad(4), Momentum()), Momentum()),
    "ClipGlobalNorm": (OptimiserChain(optimisers.ClipGlobalNorm(2.0), Momentum()), Momentum()),
    "ClipGrad": (OptimiserChain(optimisers.ClipGrad(1.0), Momentum()), Momentum()),
    "ClipNorm": (OptimiserChain(optimisers.ClipNorm(2.0), Momentum()), Momentum()),
    "MixedPrecision": (optimisers.MixedPrecision(Momentum()), Momentum()),
    "OptimiserChain": (OptimiserChain(optimisers.ClipNorm(5.0), Adam()), Adam()),
    "SignDecay": (OptimiserChain(optimisers.SignDecay(0.3), Momentum()), Momentum()),
    "SkipNonFinite": (optimisers.SkipNonFinite(Momentum()), Momentum()),
    "WeightDecay": (OptimiserChain(optimisers.WeightDecay(0.3), Momentum()), Momentum()),
}
# Their steps are those of the rule inside, as long as nothing is rounded or infinite.
WITHOUT_PICTURE = ("MixedPrecision", "OptimiserChain", "SkipNonFinite")


class Ground(NamedTuple):
    """The colours of one mode: lines of text, the rule, what it is compared with, fills."""

    ink: str
    line: str
    grey: str
    fills: tuple[str, ...]


GROUNDS = {
    "light": Ground("#20262e", "#0b62a4", "#6b717b", ("#cfe3f5", "#f7dcc6", "#d5ecd9", "#e8d9f0")),
    "dark": Ground("#e3e6eb", "#63b3ff", "#8d939e", ("#1f4160", "#5c3a1f", "#22492c", "#46305a")),
}

# The colours of races, race.COLOURS, as they can be read on dark ground.
ON_DARK = ("#63b3ff", "#ff9d5c", "#5fd39a")


@contextmanager
def drawn_on(ground: Ground) -> Iterator[None]:
    inks = ["text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor"]
    with mpl.rc_context(
        {
            **dict.fromkeys([*inks, "xtick.color", "ytick.color"], ground.ink),
            "svg.hashsalt": "optimisers",
            "savefig.transparent": True,
            "axes.titlesize": 10,
            "font.size": 9,
        }
    ):
        yield


def svg(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


@functools.cache
def lap(rule: Rule, on: str) -> race.Lap:
    return race.race(rule, on, STEPS, tuned=True)


def of_rule(name: str, ground: Ground) -> bytes:
    """Draw a rule over the three functions; grey is Descent, or what a modifier is added to."""
    mine, other = MODIFIED.get(name) or (rule_classes()[name](), Descent())
    figure = race.new_figure(8, 2.3)
    for axes, on in zip(figure.subplots(1, 3), race.COURSES, strict=True):
        race.draw_course(axes, on, ground.ink)
        reference = lap(other, on)
        # A modifier is seen at the rate of the rule that it is added to.
        way = (
            race.race(at_rate(mine, reference.rule), on, STEPS)
            if name in MODIFIED
            else lap(mine, on)
        )
        race.draw_path(axes, reference, ground.grey, linewidth=1.0)
        race.draw_path(axes, way, ground.line, marker=".")
        axes.set_title(f"{on}: {race.label(way.rule)}" if name not in MODIFIED else on)
    return svg(figure)


def at_rate(rule: Rule, other: Rule) -> Rule:
    found: Rule = rule.adjust(eta=other.eta)  # type: ignore[attr-defined]
    return found


def all_rules(ground: Ground) -> bytes:
    """Draw every rule that steps by itself over one function."""
    names = [*FOR_DIGITS]
    figure = race.new_figure(9, 7)
    for axes, name in zip(figure.subplots(4, 4).flat, names, strict=True):
        way = lap(rule_classes()[name](), "rosenbrock")
        race.draw_course(axes, "rosenbrock", ground.ink)
        race.draw_path(axes, way, ground.line)
        axes.set_title(f"{name}  {way.values[-1]:.2g}")
    return svg(figure)


def schedules(ground: Ground) -> bytes:
    """Draw three schedules as states follow them: what the next step will use."""
    shapes: dict[str, Callable[[Any], Any]] = {
        "warm up, then cosine": lambda n: jnp.where(
            n < 20, n / 20, 0.5 * (1 + jnp.cos(jnp.pi * (n - 20) / 80))
        ),
        "halve every 25": lambda n: 0.5 ** (n // 25),
        "one over root": lambda n: 1 / jnp.sqrt(1 + n / 5.0),
    }
    figure = race.new_figure(8, 2.3)
    for axes, (name, shape) in zip(figure.subplots(1, 3, sharey=True), shapes.items(), strict=True):
        axes.plot(followed(shape), color=ground.line)
        axes.set(title=name, xlabel="steps applied", ylim=(0, 1.05))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return svg(figure)


def followed(shape: Callable[[Any], Any], steps: int = 100) -> list[float]:
    model = np.zeros(1, np.float32)
    state, rates = optimisers.setup(Descent(shape), model), []
    for _ in range(steps):
        rates.append(float(state.hyperparameters["eta"]))
        state, model = optimisers.update(state, model, model)
    return rates


def three(ground: Ground) -> bytes:
    """Draw the race of the command line's example."""
    rules = (Adam(), optimisers.Lion(), Momentum())
    laps = {on: [lap(rule, on) for rule in rules] for on in race.COURSES}
    return svg(race.pictured(laps, ground.ink))


def state(ground: Ground) -> bytes:
    from docs.state_picture import draw

    return svg(draw(ground))


def benchmarks(ground: Ground) -> bytes:
    from docs.benchmark_picture import draw

    return svg(draw(ground))


OTHERS = {
    "all-rules": all_rules,
    "benchmarks": benchmarks,
    "race": three,
    "schedules": schedules,
    "state": state,
}


def names() -> list[str]:
    """Return the names of all pictures."""
    rules = [f"rules/{name}" for name in rule_classes() if name not in WITHOUT_PICTURE]
    return [*rules, *OTHERS]


def picture(name: str) -> dict[str, bytes]:
    """Return a picture as SVG, for each mode: drawn once, then in the other mode's colours."""
    ground = GROUNDS["light"]
    with drawn_on(ground):
        drawn = OTHERS[name](ground) if name in OTHERS else of_rule(Path(name).name, ground)
    return {"light": drawn, "dark": recoloured(drawn, ground, GROUNDS["dark"])}


def recoloured(drawn: bytes, old: Ground, new: Ground) -> bytes:
    pairs = zip((*old[:3], *old.fills), (*new[:3], *new.fills), strict=True)
    for before, after in (*pairs, *zip(race.COLOURS, ON_DARK, strict=False)):
        drawn = drawn.replace(before.encode(), after.encode())
    return drawn


def main(folder: Path) -> None:
    for name in names():
        for mode, drawn in picture(name).items():
            file = folder / f"{name}-{mode}.svg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(drawn)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
