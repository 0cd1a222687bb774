"""The catalogue of rules, written from their docstrings and from the table of equivalent calls."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

from docs.pictures import MODIFIED, WITHOUT_PICTURE
from optimisers import Rule
from optimisers.demo.rule_text import FOR_DIGITS, rule_classes, signature

SECTION = re.compile(r"^([A-Z]\w+):\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
ITEM = re.compile(r"^(\*?\w+): ", re.MULTILINE)
HEAD = """\
# Catalogue of rules

Written from the docstrings when this site is built. In the formulas $g$ is the gradient, $x$ the
parameter; the step is subtracted from $x$; units are in terms of $[x]$ and $[g]$.
[Mathematics and conventions](../explanation/mathematics.md) has the rest of the notation.

Each picture has the same three functions, drawn to one scale, and 150 steps: Rosenbrock's curved
valley, a valley fifty times as steep across as along, and a saddle. Dots are the start, stars the
lowest points. The learning rate is the one of forty that goes down fastest and stays in the
picture. `python -m optimisers race` draws [your own](../how-to/race.md).

![Each rule over Rosenbrock's function](../pictures/all-rules-light.svg#only-light)
![Each rule over Rosenbrock's function](../pictures/all-rules-dark.svg#only-dark)

*The value after 150 steps stands beside the name. Which rule wins here says little about networks.*
"""


def page(equivalents: str) -> str:
    """Return the page, as Markdown, given the text of the page of equivalent calls."""
    classes = rule_classes()
    steps = [name for name in FOR_DIGITS if name in classes]
    others = [name for name in classes if name not in FOR_DIGITS]
    calls = list(rows(equivalents))
    parts = [HEAD, "## Rules that step\n", "Grey is plain `Descent`, at its own best rate.\n"]
    parts += [entry(name, classes[name], calls) for name in steps]
    parts += ["## Rules that change gradients or steps\n"]
    parts += ["Grey is `Momentum` alone; the rule comes before it, in a chain.\n"]
    parts += [entry(name, classes[name], calls) for name in others]
    return "\n".join(parts)


def entry(name: str, cls: type[Rule], calls: list[list[str]]) -> str:
    """Return the part of the page about one rule."""
    text = inspect.getdoc(cls) or ""
    found = {
        heading: textwrap.dedent(body).strip() for heading, body in SECTION.findall(text + "\n")
    }
    before = SECTION.split(text + "\n", maxsplit=1)[0].strip()
    parts = [f"### {name}", before, f"`{signature(name, cls)}`"]
    parts += [f"**Update**\n\n{found['Update']}"]
    if name not in WITHOUT_PICTURE:
        shown = f"{name} before Momentum" if name in MODIFIED else name
        parts.append(
            f"![The path of {shown}](../pictures/rules/{name}-light.svg#only-light)\n"
            f"![The path of {shown}](../pictures/rules/{name}-dark.svg#only-dark)"
        )
    parts += [f"**{h}**\n\n{listed(found[h])}" for h in ("State", "Args") if h in found]
    parts.append(f"**Elsewhere**\n\n{elsewhere(name, calls)}")
    parts += [f"**{h}**\n\n{found[h]}" for h in ("Differs", "References") if h in found]
    return "\n\n".join([*parts, f"[`{name}` in the API][optimisers.{name}]"]) + "\n"


def listed(body: str) -> str:
    """Return the items of a section, `name: text`, as a list; other text as it is."""
    if not ITEM.match(body):
        return body
    items = re.split(r"\n(?=\*?\w+: )", body)
    return "\n".join(
        f"- `{head}`: {' '.join(rest.split())}"
        for head, _, rest in (i.partition(": ") for i in items)
    )


def rows(equivalents: str) -> list[list[str]]:
    """Return the cells of the table of equivalent calls: here, Optax, PyTorch, Keras."""
    lines = [line for line in equivalents.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def elsewhere(name: str, calls: list[list[str]]) -> str:
    """Return the calls of other libraries that give the numbers of a rule, the simplest ones."""
    mine = [cells for cells in calls if uses(cells[0], name)]
    lines = []
    for at, library in enumerate(("Optax", "PyTorch", "Keras"), start=1):
        pairs = [
            (cells[0], cells[at].strip(" |")) for cells in mine if cells[at].strip(" |") != "—"
        ]
        lines += [f"- {library}: {call} is {here}" for here, call in pairs[:1]]
    said = "\n".join(lines) or "No call of Optax, PyTorch or Keras gives the same numbers."
    return f"{said}\n\n[All of them, and what is tested](equivalents.md)."


def uses(call: str, name: str) -> bool:
    """Whether a call is of this rule, by itself or first in a chain."""
    return call.startswith(f"`{name}(") or f"({name}(" in call


def source() -> str:
    """Return the page, as it is built."""
    return page((Path(__file__).parent / "rules" / "equivalents.md").read_text(encoding="utf-8"))
