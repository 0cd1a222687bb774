"""What the options of the commands share: one line and exit code 2 for those that cannot be."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from optimisers import Rule
from optimisers.errors import RuleError
from optimisers.race import check_file

from .rule_text import parse_rule


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        """Leave with one line and code 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def rule(text: str) -> Rule:
    """Read a rule, as an option's type."""
    try:
        return parse_rule(text)
    except RuleError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return the type of an option that is a whole number."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"expected a whole number from {least} to {most}, got {text!r}"
            )
        return value

    return number


def picture(text: str) -> Path:
    """Read the name of a picture that can be written, as an option's type."""
    file = Path(text)
    try:
        check_file(file)
    except (ImportError, OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return file


def cannot_draw(file: Path, error: OSError) -> OSError:
    """Return the error that says in one line which picture could not be written, and why."""
    return OSError(f"cannot draw to {str(file)!r}: {error.strerror or error}")
