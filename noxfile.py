"""One session per check. `.ci/run` runs these very sessions in an environment of its own making.

nox              everything but the benchmark
nox -s lint      one check
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = [
    "lint",
    "types",
    "layers",
    "tests",
    "interop",
    "doctests",
    "demo",
    "docs",
    "browser",
]

# A plain `torch` would bring GPU libraries on Linux, so no extra names it: it comes first, pinned.
TORCH = "torch==2.13.0"
LIBRARIES = "docs/how-to/ad-libraries.md"  # its examples need every one of them
PROJECT = nox.project.load_toml("pyproject.toml")
TOOLS = nox.project.dependency_groups(PROJECT, "lint")
BROWSER = nox.project.dependency_groups(PROJECT, "browser")


@nox.session
def lint(session: nox.Session) -> None:
    session.install(*TOOLS)
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    session.install(TORCH)
    session.install("-e", ".[test]", *TOOLS)
    session.run("mypy")
    session.run("pyright")


@nox.session
def layers(session: nox.Session) -> None:
    session.install("-e", ".[test]", *TOOLS)
    session.run("lint-imports", "--no-cache")


@nox.session
def tests(session: nox.Session) -> None:
    session.install(TORCH)
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "--cov", "--cov-fail-under=0", *session.posargs)


@nox.session
def interop(session: nox.Session) -> None:
    """Run what needs all the libraries that differentiate, and their page of examples.

    After `tests`, so that the coverage is judged of both together.
    """
    session.install(TORCH)
    session.install("-e", ".[test,interop-more]")
    run = ("python", "-m", "pytest", "--cov", "--cov-append", "--cov-fail-under=0")
    backend = {"KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3"}
    demo = "tests/test_demo.py::test_gradients_of_any_library_reach_the_same"
    session.run(*run, "tests/interop", "tests/rules/test_peers.py", demo, env=backend)
    session.run(*run, LIBRARIES, env=backend)
    session.run("python", "-m", "coverage", "report")


@nox.session
def doctests(session: nox.Session) -> None:
    """Run what docstrings and documentation pages show, and compare what they say comes out."""
    session.install(TORCH)
    session.install("-e", ".[test]")
    pages = ("optimisers", "docs", f"--ignore={LIBRARIES}")
    session.run("python", "-m", "pytest", "--doctest-modules", *pages)


@nox.session
def demo(session: nox.Session) -> None:
    session.install("-e", ".[demo]")
    session.run("python", "-m", "optimisers")


@nox.session
def benchmark(session: nox.Session) -> None:
    """Run one quick round, so that the benchmark cannot rot; times are judged by a person."""
    session.install(TORCH)
    session.install("-e", ".[test]")
    file = str(Path(session.create_tmp()) / "found.json")
    session.run("python", "benchmarks/compare.py", "--quick", "--json", file)
    session.run("python", "benchmarks/check.py", file)
    session.run("python", "benchmarks/overhead.py", "6", "150")


@nox.session
def docs(session: nox.Session) -> None:
    session.install("-e", ".[docs]")
    session.run("mkdocs", "build", "--strict", "--site-dir", session.create_tmp())


@nox.session
def browser(session: nox.Session) -> None:
    """Open every page of the built site in Chromium; its chromedriver has to be there too."""
    session.install("-e", ".[test,docs]", *BROWSER)
    site = session.create_tmp()
    session.run("mkdocs", "build", "--strict", "--site-dir", site)
    session.run("python", "-m", "pytest", "tests/built_site.py", env={"SITE": site})
