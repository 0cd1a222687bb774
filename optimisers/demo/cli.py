"""The command line: options in, one clear line and exit code 2 for those that cannot be."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from optimisers.errors import OptimiserError

from ..arrays.needs import need
from . import curves, digits, racing
from .gradients import LIBRARIES
from .options import Parser, cannot_draw, picture, rule, whole
from .rule_text import catalogue
from .training import Run, train

EPILOG = """\
examples:
  python -m optimisers --rule "Momentum(0.05)" --plot curves.png
  python -m optimisers --rule "OptimiserChain(ClipNorm(1), Adam(0.01))" --ad torch
  python -m optimisers rules
  python -m optimisers race --rules Adam Lion Momentum --out race.png
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo with the given arguments (those of the process by default).

    Returns:
        The exit code: 0, or 1 where the training diverged, or 130 where it was interrupted. Bad
        options and missing libraries leave by `SystemExit(2)`.
    """
    parser, options = read(argv)
    try:
        if options.command == "race":
            return racing.run(options)
        if options.command == "rules":
            print(catalogue())
            return 0
        return _demo(options)
    except (OptimiserError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130


def read(argv: Sequence[str] | None = None) -> tuple[Parser, argparse.Namespace]:
    """Read the arguments of a command; returns them with the parser that knows their options."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["race"]:
        parser = racing.parser()
        return parser, parser.parse_args(words[1:], argparse.Namespace(command="race"))
    parser = _parser()
    return parser, parser.parse_args(words)


def _parser() -> Parser:
    parser = Parser(
        prog="python -m optimisers",
        description="Train a small network on handwritten digits and print its test accuracy.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=["rules", "race"],
        help="list the rules instead of training, or let some race (`race --help`)",
    )
    parser.add_argument(
        "--rule", type=rule, default="Adam", help='a rule, e.g. "Momentum(0.05)" (default: Adam)'
    )
    parser.add_argument(
        "--steps", type=whole(1, 10**6), default=1000, help="how many steps (default: 1000)"
    )
    parser.add_argument(
        "--seed",
        type=whole(0, 2**32 - 1),
        default=0,
        help="for the split, the weights and the batches",
    )
    parser.add_argument(
        "--ad", choices=LIBRARIES, default="jax", help="whose gradients (default: jax)"
    )
    parser.add_argument(
        "--plot", type=picture, metavar="FILE.png", help="draw loss and accuracy into a file"
    )
    return parser


def _demo(options: argparse.Namespace) -> int:
    bar = need("tqdm", "show a progress bar").tqdm
    limits = need("threadpoolctl", "keep to one thread").threadpool_limits
    data = digits.load(options.seed)
    source = LIBRARIES[options.ad]()
    print(f"{len(data.labels)} images of digits to learn from, {len(data.test_labels)} held out")
    print(f"{options.rule}, gradients from {options.ad}", flush=True)
    began = time.perf_counter()
    # One thread: on matrices this small torch and NumPy lose more by waiting for a second one than
    # it gains them, a hundredfold where other programs keep the cores busy.
    # disable=None: no bar where nobody looks, as in a pipe.
    with limits(1):
        run = train(
            options.rule, source, data, options.steps, options.seed,
            lambda steps: bar(steps, unit="step", disable=None),
        )  # fmt: skip
    if run.diverged:
        print(f"the loss is no longer finite after {len(run.losses)} steps: take smaller ones")
        return 1
    seconds = time.perf_counter() - began
    print(f"test accuracy {run.accuracy:.1f} % after {options.steps} steps in {seconds:.1f} s")
    if options.plot:
        _draw(run, options)
    return 0


def _draw(run: Run, options: argparse.Namespace) -> None:
    try:
        curves.draw(run, f"{options.rule}, gradients from {options.ad}", options.plot)
    except OSError as error:
        raise cannot_draw(options.plot, error) from None
    print(f"curves drawn into {options.plot}")
