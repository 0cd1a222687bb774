"""The documentation: no block of code is left out, and what pages promise about the whole is so."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import optimisers
import optimisers.race
import optimisers.testing
from optimisers.demo import cli
from optimisers.demo.rule_text import rule_classes, signature

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(
    r"^([ \t]*)```[ \t]*([\w+-]*)[^\n]*\n(.*?)^\1```[ \t]*$", re.DOTALL | re.MULTILINE
)
# Languages of blocks that hold no Python; the tests below look at what the shell ones say.
OTHERS = {"sh", "output", "text", "julia", "toml"}
ACTS = ("python -m pip install ", "python -m venv ", "python -m pytest", "nox", ". ", "git ")


def page(file: Path) -> str:
    return str(file.relative_to(DOCS))


def sybil() -> Any:
    """Return the parser that the run of the pages uses."""
    spec = importlib.util.spec_from_file_location("docs_conftest", DOCS / "conftest.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages


@pytest.mark.parametrize("file", PAGES, ids=page)
def test_no_python_block_is_left_out(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    spans = [(region.start, region.end) for region in sybil().parse(file).examples()]
    for fence in FENCE.finditer(text):
        indent, language, body = fence.groups()
        line = text.count("\n", 0, fence.start()) + 1
        if language == "python":
            inside = [s for s in spans if fence.start() <= s[0] and s[1] <= fence.end() + 1]
            assert inside, f"line {line} does not run"
            assert not indent, f"line {line}: an indented block is not found by every reader"
            assert "doctest: +SKIP" not in body
        else:
            assert language in OTHERS, f"line {line}: a block of {language or 'no language'}"
    assert "skip:" not in re.sub(FENCE, "", text)


@pytest.mark.parametrize("file", PAGES, ids=page)
def test_what_a_block_prints_is_shown_below_it(file: Path) -> None:
    blocks = list(FENCE.finditer(file.read_text(encoding="utf-8")))
    for block, after in zip(blocks, [block[2] for block in blocks[1:]] + [""], strict=False):
        if block[2] == "python" and not block[3].startswith(">>>"):
            calls = [n for n in ast.walk(ast.parse(block[3])) if isinstance(n, ast.Call)]
            if any(ast.unparse(call.func) == "print" for call in calls):
                assert after == "output", block[0]


@pytest.mark.parametrize("file", [*PAGES, ROOT / "README.md"], ids=lambda file: file.name)
def test_shell_blocks_hold_commands_that_there_are(file: Path) -> None:
    for block in FENCE.finditer(file.read_text(encoding="utf-8")):
        if block[2] != "sh":
            continue
        for line in block[3].splitlines():
            for command in filter(None, line.partition("#")[0].strip().split(" && ")):
                words = shlex.split(command)
                if words[:3] == ["python", "-m", "optimisers"]:
                    cli.read(words[3:])
                elif words[0] == "python" and words[1].endswith(".py"):
                    assert (ROOT / words[1]).is_file(), command
                else:
                    assert command.startswith(ACTS), command


def public_names() -> list[str]:
    """Return every public name: those at the top, and those of the modules that stand beside."""
    top = [n for n in optimisers.__all__ if not isinstance(getattr(optimisers, n), ModuleType)]
    beside = [
        f"{module.__name__}.{name}"
        for module in (optimisers.ad, optimisers.race, optimisers.testing)
        for name in module.__all__
    ]
    classes = [n for n, value in vars(optimisers.errors).items() if isinstance(value, type)]
    return [f"optimisers.{n}" for n in top] + beside + [f"optimisers.errors.{n}" for n in classes]


def described() -> Iterator[str]:
    """Yield the names that the pages under API describe; a module stands for what it exports.

    Where a function is named as its module, a page has to say the whole path, or the module is
    shown; the test of the built site sees that.
    """
    tops = {
        f"{value.__module__}.{name}": f"optimisers.{name}"
        for name in optimisers.__all__
        if callable(value := getattr(optimisers, name))
    }
    for file in (DOCS / "api").glob("*.md"):
        for name, options in re.findall(
            r"^::: ([\w.]+)\n((?:[ ]+.*\n)*)", file.read_text(encoding="utf-8"), re.MULTILINE
        ):
            chosen = re.search(r"members: \[(.*)\]", options)
            if chosen:
                yield from (f"{name}.{member}" for member in chosen[1].split(", "))
            elif name == "optimisers.errors":
                yield from (
                    f"{name}.{n}" for n, v in vars(optimisers.errors).items() if isinstance(v, type)
                )
            elif name != "optimisers.rules":
                yield tops.get(name, name)


def test_every_public_name_stands_once_under_api() -> None:
    assert sorted(described()) == sorted(public_names())


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = re.findall(r"([\w/-]+\.md)$", config.partition("nav:")[2], re.MULTILINE)
    assert sorted(nav) == sorted([*map(page, PAGES), "rules/catalogue.md"])
    assert len(set(nav)) == len(nav)


NEEDS = {
    "interop": r"(?:import|from) (?:autograd|equinox|flax|optax)\b",
    "demo": r"optimisers\.demo|\bdraw\(",
    "save": r"optimisers\.save\(",
}


@pytest.mark.parametrize("file", sorted((DOCS / "tutorials").glob("*.md")), ids=page)
def test_a_tutorial_says_what_to_install(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    code = "\n".join(block[3] for block in FENCE.finditer(text) if block[2] == "python")
    needed = {extra for extra, use in NEEDS.items() if re.search(use, code)}
    told = re.search(r'^python -m pip install "\.\[([\w,]+)\]"$', text, re.MULTILINE)
    assert needed == set(told[1].split(",") if told else ())


def test_the_picture_of_the_benchmarks_finds_their_table() -> None:
    from docs.benchmark_picture import PAGE, table

    names, rows = table(PAGE.read_text(encoding="utf-8"))
    assert names[:2] == ["optimisers", "Optax"]
    assert len(rows) >= 5
    assert all(float(time) > 0 for _, *times in rows for time in times)
    with pytest.raises(ValueError, match=r"the table of benchmarks.md begins with other columns"):
        table("| a | b |\n|---|---|\n| 1 | 2 |\n")


def test_the_catalogue_has_each_rule_with_its_formula_and_its_calls_elsewhere() -> None:
    from docs.catalogue import source

    parts = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", source(), re.DOTALL | re.MULTILINE))
    assert sorted(parts) == sorted(rule_classes())
    for name, cls in rule_classes().items():
        text = parts[name]
        assert signature(name, cls) in text
        assert text.index("**Update**") < text.index("**State**") < text.index("**References**")
        assert f"[optimisers.{name}]" in text
    assert "- Optax: `optax.adam(0.001)` is `Adam(0.001)`" in parts["Adam"]
    assert "- PyTorch: `torch.optim.Rprop(w, lr=0.001)` is `Rprop(0.001)`" in parts["Rprop"]
    assert "No call of Optax, PyTorch or Keras gives the same numbers." in parts["MixedPrecision"]


def test_words_in_pictures_stand_out_in_both_modes() -> None:
    from docs.pictures import GROUNDS

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05

    for mode, page in {"light": "#ffffff", "dark": "#1e2129"}.items():
        ground = GROUNDS[mode]
        on_page = [(words, page) for words in (ground.ink, ground.line, ground.grey)]
        for words, under in [*on_page, *((ground.ink, fill) for fill in ground.fills)]:
            less, more = sorted((light(words), light(under)))
            assert more / less >= 4.5, (words, under)  # what WCAG 2.1 asks of text
