"""What the style of this project asks for and a program can check."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import optimisers
from optimisers.demo.rule_text import rule_classes

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "optimisers"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MODULES = sorted(PACKAGE.rglob("*.py"))
FILES = sorted(
    file
    for folder in ("optimisers", "tests", "benchmarks", "docs")
    for file in (ROOT / folder).rglob("*.py")
)
# One list of the rooms for the linter and for this file; what stands beside them comes before.
LAYERS = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
ROOMS = LAYERS[LAYERS.index("api") :]

PUBLIC = {name: getattr(optimisers, name) for name in optimisers.__all__}
FUNCTIONS = {
    name: value
    for name, value in PUBLIC.items()
    if callable(value) and not isinstance(value, type | types.ModuleType)
}
RULES = rule_classes()
RULE_SECTIONS = ["Update", "State", "Args", "Raises", "Differs", "Examples", "References"]

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 40


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def sections(thing: Any) -> list[str]:
    """Return the headings of a docstring, in order."""
    return re.findall(r"^([A-Z]\w+):$", inspect.getdoc(thing) or "", re.MULTILINE)


def section(thing: Any, heading: str) -> str:
    """Return the text of one section."""
    found = re.search(
        rf"^{heading}:\n((?:[ ].*\n|\n)*)", f"{inspect.getdoc(thing)}\n", re.MULTILINE
    )
    return found[1] if found else ""


def functions_in(file: Path) -> Iterator[tuple[str, int]]:
    """Yield each function with its number of lines, the docstring left out."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                text = node.body[0]
                lines -= (text.end_lineno or 0) - text.lineno + 1
            yield f"{name_of(file)}:{node.lineno} {node.name}", lines


def imports_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each module of this package that a file imports, by its full name."""
    package = file.relative_to(ROOT).parent.parts
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def per(files: list[Path]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("file", files, ids=name_of)


@per(MODULES)
def test_every_module_says_what_it_is_for(file: Path) -> None:
    docstring = ast.get_docstring(parsed(file))
    assert docstring
    if file.name == "__init__.py" and file.parent != PACKAGE:
        # One sentence: a room that needs more has a README.
        assert len(re.findall(r"[.!?](?:\s|$)", docstring)) == 1


@per(FILES)
def test_files_and_functions_stay_short(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
    long = [at for at, lines in functions_in(file) if lines > MOST_LINES_OF_A_FUNCTION]
    assert long == []


@per([file for file in MODULES if file.relative_to(PACKAGE).parts[0].removesuffix(".py") in ROOMS])
def test_a_room_imports_only_from_rooms_further_down(file: Path) -> None:
    own = ROOMS.index(file.relative_to(PACKAGE).parts[0].removesuffix(".py"))
    wrong = []
    for line, name in imports_of(file):
        match name.split("."):
            case ["optimisers", room, *_] if room in ROOMS[own:]:
                continue
            case ["optimisers", *_]:
                wrong.append(f"{name_of(file)}:{line} {name}")
    assert wrong == []


@pytest.mark.parametrize("package", [optimisers, optimisers.rules])
def test_stubs_and_packages_agree_about_the_public_names(package: types.ModuleType) -> None:
    assert package.__file__ is not None
    stub = Path(package.__file__).with_suffix(".pyi")
    for node in parsed(stub).body:
        if isinstance(node, ast.ImportFrom):
            home = importlib.import_module("." * node.level + (node.module or ""), package.__name__)
            for alias in node.names:
                assert alias.asname == alias.name  # an export, to type checkers
                assert getattr(package, alias.name) is getattr(home, alias.name)
    told = [a.name for n in parsed(stub).body if isinstance(n, ast.ImportFrom) for a in n.names]
    assert sorted(told) == package.__all__ == dir(package)
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("name", ["Adm"])
def test_a_name_that_is_not_there_is_an_error_with_the_nearest_one(name: str) -> None:
    with pytest.raises(AttributeError, match=r"'optimisers' has no attribute 'Adm'$") as caught:
        getattr(optimisers, name)
    assert (caught.value.name, caught.value.obj) == (name, optimisers)  # what Python suggests from
    assert not hasattr(optimisers.rules, "setup")


@pytest.mark.parametrize("name", [n for n in PUBLIC if not n.startswith("_")])
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    docstring = PUBLIC[name].__doc__
    assert docstring
    first = docstring.strip().partition("\n\n")[0]
    assert first.endswith((".", "!", ":"))


@pytest.mark.parametrize("name", [n for n in PUBLIC if not n.startswith("_")])
def test_help_reads_well_in_a_terminal(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(PUBLIC[name]))
    assert " at 0x" not in text
    # What `help` puts before a line of ours is short, and terminals are rarely narrower than this.
    own = inspect.getdoc(PUBLIC[name]) or ""
    assert [line for line in own.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_describes_its_arguments(name: str) -> None:
    function = FUNCTIONS[name]
    wanted = {"Args", "Returns", "Raises", "Examples"}
    if name == "trainable":
        wanted.remove("Raises")  # it answers for any object
    assert wanted - set(sections(function)) == set()
    described = section(function, "Args")
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"\b{re.escape(parameter)}\b", described), parameter


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_its_sections_in_order(name: str) -> None:
    found = [heading for heading in sections(RULES[name]) if heading in RULE_SECTIONS]
    assert found == [heading for heading in RULE_SECTIONS if heading in found]
    assert {"Update", "State", "References"} <= set(found)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_describes_each_of_its_fields(name: str) -> None:
    described = section(RULES[name], "Args")
    for field in fields(RULES[name]):  # type: ignore[arg-type]
        assert re.search(rf"^\s*\*?{field.name}:", described, re.MULTILINE), field.name


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_a_file_named_after_it_and_to_itself(name: str) -> None:
    room, file = RULES[name].__module__.split(".")[1:]
    assert room == "rules"
    assert file.replace("_", "") == name.removeprefix("Optimiser").lower()
    assert [other for other in RULES.values() if other.__module__ == RULES[name].__module__] == [
        RULES[name]
    ]


def test_exceptions_live_in_one_module_with_their_tree() -> None:
    # A Question leaves a rule's `apply` and is always answered, a Problem is gathered with others
    # into one StateError, Unfit sends a step the general way; no user can see any of them.
    inside = {"Question", "Problem", "Unfit"}
    found = {
        node.name
        for file in MODULES
        if file != PACKAGE / "errors.py"
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ClassDef)
        and any(
            ast.unparse(base).endswith(("Error", "Exception", "Warning")) for base in node.bases
        )
    }
    assert found == inside
    errors = [
        n.name for n in ast.walk(parsed(PACKAGE / "errors.py")) if isinstance(n, ast.ClassDef)
    ]
    tree = ast.get_docstring(parsed(PACKAGE / "errors.py")) or ""
    assert [error for error in errors if error not in tree] == []


def test_the_version_is_the_top_of_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert versions[0] == optimisers.__version__


def test_three_libraries_are_required_and_no_others() -> None:
    names = [re.match(r"[\w-]+", d)[0] for d in PROJECT["project"]["dependencies"]]  # type: ignore[index]
    assert sorted(names) == ["jax", "numpy", "optree"]
    extras = PROJECT["project"]["optional-dependencies"]
    assert sorted(extras) == ["demo", "docs", "interop", "interop-more", "save", "test"]


def in_a_new_process(code: str) -> str:
    """Return what a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


def test_the_package_imports_no_optional_library() -> None:
    optional = {
        "autograd", "equinox", "flax", "haiku", "keras", "matplotlib", "mlx", "optax", "penzai",
        "sklearn", "tensorflow", "tinygrad", "torch", "tqdm",
    }  # fmt: skip
    code = f"from optimisers import *; import sys; print(sorted({optional!r} & set(sys.modules)))"
    assert in_a_new_process(code) == "[]\n"


def test_importing_the_package_starts_no_backend_of_jax() -> None:
    # That takes a third of a second, and settles what users may still want to set.
    code = (
        "from optimisers import *; import jax; jax.config.update('jax_num_cpu_devices', 3); "
        "print(jax.device_count('cpu'))"
    )
    assert in_a_new_process(code) == "3\n"


def test_a_name_is_imported_when_it_is_asked_for() -> None:
    code = "import optimisers, sys; print({'jax', 'numpy', 'optree'} & set(sys.modules))"
    assert in_a_new_process(code) == "set()\n"
    code = (
        "from optimisers import Adam, setup, update, update_; import sys; "
        "print(*(name for name in sys.modules if name.startswith('optimisers.')))"
    )
    loaded = in_a_new_process(code).split()
    assert not {name.split(".")[1] for name in loaded} & {"ad", "demo", "interop", "training"}
    assert "optimisers.rules.adam" in loaded
    assert "optimisers.rules.adamw" not in loaded


def test_no_test_imports_at_its_top_what_may_not_be_installed() -> None:
    # Such a module could not even be collected. Those of interop/libraries are imported by tests
    # that say what they need.
    found = [
        f"{name_of(file)}:{node.lineno}"
        for file in (ROOT / "tests").rglob("*.py")
        if file.parent.name != "libraries"
        for node in parsed(file).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and re.match(
            r"(import|from) (haiku|keras|mlx|penzai|tensorflow|tinygrad|torch)\b", ast.unparse(node)
        )
    ]
    assert found == []
