"""The command `race`: several rules over test functions, or on the digits, in one picture."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optimisers import Rule, race
from optimisers.errors import RuleError

from . import digits
from .gradients import LIBRARIES
from .options import Parser, cannot_draw, picture, whole
from .rule_text import parse_rule, rule_classes
from .training import Run, train

MOST = len(race.COLOURS)
EPILOG = """\
A bare name stands for the rule at the learning rate, of forty, that goes down fastest; on the
digits, for one that suits them. A call such as "Momentum(0.01)" stands for itself.

examples:
  python -m optimisers race --rules Adam Lion Momentum --out race.png
  python -m optimisers race --rules "Adam(0.1)" "Adam(0.5)" --on rosenbrock --out rates.svg
  python -m optimisers race --rules Adam Lion --on digits --steps 500 --out digits.png
"""


def parser() -> Parser:
    """Return the parser of the options of `race`."""
    found = Parser(
        prog="python -m optimisers race",
        description="Let rules race, and draw their paths and how fast they go down.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument(
        "--rules", nargs="+", required=True, metavar="RULE", help=f"one to {MOST} rules"
    )
    found.add_argument(
        "--on",
        nargs="+",
        choices=[*race.COURSES, "digits"],
        default=list(race.COURSES),
        help="test functions, or digits (default: the three functions)",
    )
    found.add_argument("--out", type=picture, required=True, metavar="FILE.png", help="the picture")
    found.add_argument("--steps", type=whole(1, 10**5), default=150, help="how many (default: 150)")
    found.add_argument(
        "--seed", type=whole(0, 2**32 - 1), default=0, help="on the digits: weights and batches"
    )
    return found


def run(options: argparse.Namespace) -> int:
    """Run the race that the options describe, print how it ended, and draw it."""
    if len(options.rules) > MOST:
        raise RuleError(f"cannot draw {len(options.rules)} rules; expected {MOST} at most")
    if "digits" in options.on and len(options.on) > 1:
        raise RuleError("cannot draw the digits beside test functions; run them by themselves")
    rules = [(text, parse_rule(text)) for text in options.rules]
    try:
        _digits(rules, options) if options.on == ["digits"] else _functions(rules, options)
    except OSError as error:
        raise cannot_draw(options.out, error) from None
    print(f"race drawn into {options.out}")
    return 0


def _functions(rules: Sequence[tuple[str, Rule]], options: argparse.Namespace) -> None:
    laps = {on: list(_laps(rules, on, options.steps)) for on in dict.fromkeys(options.on)}
    race.draw(laps, options.out)


def _laps(rules: Sequence[tuple[str, Rule]], on: str, steps: int) -> Iterator[race.Lap]:
    print(f"{on}, value after {steps} steps")
    for text, rule in rules:
        # A bare name means no rate in particular; what parse_rule gives it is for the digits.
        tuned = text.strip() in rule_classes()
        mine = rule_classes()[text.strip()]() if tuned else rule
        lap = race.race(mine, on, steps, tuned=tuned)
        print(f"  {lap.values[-1]:9.3g}  {lap.rule}", flush=True)
        yield lap


def _digits(rules: Sequence[tuple[str, Rule]], options: argparse.Namespace) -> None:
    data, source = digits.load(options.seed), LIBRARIES["jax"]()
    print(f"digits, held-out accuracy after {options.steps} steps")
    runs = {}
    for text, rule in rules:
        done = runs[text] = train(rule, source, data, options.steps, options.seed)
        print(f"  {done.accuracy:7.1f} %  {rule}{', diverged' * done.diverged}", flush=True)
    _draw(runs, options.out)


def _draw(runs: dict[str, Run], file: Path) -> None:
    figure = race.new_figure(9, 4)
    left, right = figure.subplots(1, 2)
    losses = {name: _smooth(run.losses) for name, run in runs.items()}
    race.draw_curves(
        left, losses, title="Loss on the training images, mean of 25", xlabel="step",
        ylabel="cross-entropy (nats)", yscale="log",
    )  # fmt: skip
    shares = {name: tuple(zip(*run.accuracies, strict=True)) for name, run in runs.items()}
    race.draw_curves(
        right, shares, title="Held-out images", xlabel="step", ylabel="accuracy (%)", ylim=(0, 102)
    )  # fmt: skip
    figure.savefig(file, dpi=150)


def _smooth(losses: Sequence[float]) -> tuple[Any, Any]:
    width = min(25, len(losses))
    return np.arange(width, len(losses) + 1), np.convolve(
        losses, np.full(width, 1 / width), "valid"
    )
