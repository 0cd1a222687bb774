"""The demo: what it reaches, what it prints, and the one line that bad options get."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import optimisers
from optimisers import (
    AccumGrad,
    Adam,
    ClipNorm,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    SkipNonFinite,
)
from optimisers.demo import cli, digits
from optimisers.demo.gradients import LIBRARIES
from optimisers.demo.rule_text import FOR_DIGITS, parse_rule, rule_classes
from optimisers.demo.training import train
from optimisers.errors import MissingLibraryError, RuleError
from optimisers.rules.rule import Wrapper

from .cases import CASES
from .interop.table import ROWS


def accuracy_in(text: str) -> float:
    found = re.search(r"^test accuracy (\d+\.\d) %", text, re.MULTILINE)
    assert found, text
    return float(found[1])


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Return the one line on standard error, having checked that it is one and the code is 2."""
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    assert out == ""
    return err


def test_the_digits_are_learnt_above_95_percent(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert "1347 images of digits to learn from, 450 held out" in out
    assert accuracy_in(out) > 95


@functools.cache
def accuracy_of(ad: str) -> float:
    return train(parse_rule("Momentum(0.05)"), LIBRARIES[ad](), digits.load(0), 300, 0).accuracy


@pytest.mark.peers
@pytest.mark.parametrize(
    "ad",
    [
        x
        if x in ("equinox", "nnx", "linen", "autograd")
        else pytest.param(x, marks=pytest.mark.needs(x))
        for x in LIBRARIES
        if x != "jax"
    ],
)
def test_gradients_of_any_library_reach_the_same(ad: str) -> None:
    assert accuracy_of(ad) > 95
    assert abs(accuracy_of(ad) - accuracy_of("jax")) <= 1


def test_each_library_of_the_table_can_be_asked_for() -> None:
    table = {row.file.strip("_") for row in ROWS}
    assert table - {"flax"} | {"nnx", "linen"} == set(LIBRARIES)


def test_each_optimiser_of_the_table_has_its_numbers_for_the_digits() -> None:
    optimisers_there = {
        type(case.rule).__name__
        for case in CASES
        if case.trains and not isinstance(case.rule, Wrapper)
    }
    assert set(FOR_DIGITS) == optimisers_there


@pytest.mark.parametrize("name", FOR_DIGITS)
def test_a_bare_name_is_enough_for_each_optimiser(name: str) -> None:
    data = digits.load(0)
    assert train(parse_rule(name), LIBRARIES["jax"](), data, steps=300, seed=0).accuracy > 90


def test_the_same_seed_gives_the_same_run() -> None:
    data = digits.load(3)
    runs = [train(Adam(0.01), LIBRARIES["jax"](), data, steps=10, seed=s) for s in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_chain_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--rule", "OptimiserChain(ClipNorm(1), Adam(0.01))", "--steps", "200"]) == 0
    out = capsys.readouterr().out
    assert repr(OptimiserChain(ClipNorm(1), Adam(0.01))) in out
    assert accuracy_in(out) > 90


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Momentum(0.05)", Momentum(0.05)),
        ("Momentum(rho=0.5)", Momentum(rho=0.5)),
        (" Adam(0.01, (0.8, 0.9)) ", Adam(0.01, (0.8, 0.9))),
        ("Adam(beta=[0.8, 0.9])", Adam(beta=(0.8, 0.9))),
        ("ClipNorm(1, p=inf)", ClipNorm(1, p=float("inf"))),
        ("ClipNorm(1, -inf)", ClipNorm(1, p=float("-inf"))),
        ("ClipNorm(1, throw=False)", ClipNorm(1, throw=False)),
        ("OptimiserChain()", OptimiserChain()),
        ("OptimiserChain(ClipNorm(1), Momentum)", OptimiserChain(ClipNorm(1), Momentum(0.05))),
    ],
)
def test_a_rule_is_read_as_the_call_that_makes_it(text: str, rule: optimisers.Rule) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    "rule",
    [
        Momentum(0.05),
        ClipNorm(2, p=float("inf")),
        OptimiserChain(ClipNorm(2), Adam()),
        MixedPrecision(Adam(), "float64"),
        SkipNonFinite(AccumGrad(3)),
    ],
)
def test_what_a_rule_prints_is_read_back(rule: optimisers.Rule) -> None:
    assert parse_rule(repr(rule)) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read ''"),
        ("Adam(", r"cannot read 'Adam\('"),
        ("Adam(\0)", "cannot read"),
        ("(" * 5000, "cannot read"),
        ("3", "'3' is not a rule"),
        ("-Adam(1)", r"cannot read '-Adam\(1\)'"),
        ("Adm(1)", "there is no rule Adm; did you mean Adam?"),
        ("Rule", "there is no rule Rule"),
        ("zzzzzz", "`python -m optimisers rules` lists them"),
        ("Adam(-1)", "eta must be .* got -1.0"),
        ("Adam(nan)", "there is no rule nan"),
        ("Adam('a')", "eta must be a number"),
        ("Adam(lr=1)", r"it is made as Adam\(eta=0.001, beta=\(0.9, 0.999\), epsilon=1e-08\)"),
        ("Adam(1, 2, 3, 4)", "it is made as Adam"),
        ("Adam(**{'eta': 1})", "cannot read"),
        ("Adam(*[1])", "cannot read"),
        ("OptimiserChain(1)", "OptimiserChain takes rules"),
        ("__import__('os').system('true')", "cannot read"),
        ("Adam(__import__('os'))", "there is no rule __import__"),
        ("Adam(1 + 1)", r"cannot read '1 \+ 1'"),
        ("Adam if True else Adam", "cannot read"),
        ("lambda: 1", "cannot read"),
    ],
)
def test_nothing_but_rules_and_literals_is_read(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        parse_rule(text)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--rule", "Adm"], "--rule: there is no rule Adm; did you mean Adam?"),
        (["--rule", "Adam(-1)"], "eta"),
        (["--rule", "Ad\nam("], "--rule: cannot read"),
        (["--rule"], "--rule: expected one argument"),
        (["--steps", "0"], "--steps: expected a whole number from 1 to 1000000, got '0'"),
        (["--steps", "1.5"], "--steps: expected a whole number from 1 to 1000000, got '1.5'"),
        (["--seed", "-1"], "--seed: expected a whole number from 0 to 4294967295, got '-1'"),
        (["--seed", "4294967296"], "--seed: expected a whole number"),
        (["--ad", "zygote"], "--ad: invalid choice: 'zygote'"),
        (["--plot", "curves.doc"], "--plot: cannot draw to 'curves.doc'"),
        (["--plot", "curves"], "must end in"),
        (["--plot", "no/such/folder/curves.png"], "there is no folder 'no/such/folder'"),
        (["--step=3"], "unrecognized arguments: --step"),
        (["rule"], "invalid choice: 'rule'"),
    ],
)
def test_bad_options_get_one_clear_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capsys, *argv)
    assert line.startswith("python -m optimisers: ")
    assert message in line


def test_a_folder_is_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "curves.png"
    folder.mkdir()
    assert "it is a folder" in refusal(capsys, "--plot", str(folder))


@pytest.mark.parametrize(
    ("module", "argv", "install"),
    [
        ("sklearn", [], '"optimisers[demo]"'),
        ("tqdm", [], '"optimisers[demo]"'),
        ("threadpoolctl", [], '"optimisers[demo]"'),
        ("matplotlib", ["--plot", "curves.png"], '"optimisers[demo]"'),
        ("equinox", ["--ad", "equinox"], "equinox"),
        ("flax", ["--ad", "nnx"], "flax"),
        ("flax", ["--ad", "linen"], "flax"),
        ("haiku", ["--ad", "haiku"], "dm-haiku"),
        ("penzai", ["--ad", "penzai"], "penzai"),
        ("keras", ["--ad", "keras"], "keras"),
        ("autograd", ["--ad", "autograd"], "autograd"),
        ("torch", ["--ad", "torch"], "torch"),
    ],
)
def test_a_missing_library_gets_the_line_that_installs_it(
    module: str,
    argv: list[str],
    install: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    line = refusal(capsys, *argv)
    assert line.endswith(f"{module} is not installed; python -m pip install {install}\n")


def test_a_missing_library_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "autograd", None)
    with pytest.raises(ImportError, match="cannot differentiate with AutoAutograd") as error:
        LIBRARIES["autograd"]()
    assert isinstance(error.value, MissingLibraryError)


def test_the_curves_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "curves.png"
    assert cli.main(["--steps", "30", "--plot", str(file)]) == 0
    assert str(file) in capsys.readouterr().out
    from matplotlib.image import imread

    picture = imread(file)
    height, width, _ = picture.shape
    assert width > height > 500
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50


def test_a_picture_that_cannot_be_written_gets_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("optimisers.demo.curves.draw", full)
    file = tmp_path / "curves.png"
    with pytest.raises(SystemExit) as stop:
        cli.main(["--steps", "2", "--plot", str(file)])
    assert stop.value.code == 2
    assert (
        capsys.readouterr().err == f"python -m optimisers: cannot draw to {str(file)!r}: no space\n"
    )


def test_rules_are_listed_with_defaults_and_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads, texts = lines[::2], lines[1::2]
    assert [head.partition("(")[0] for head in heads] == list(rule_classes())
    assert "Momentum(eta=0.01, rho=0.9)" in heads
    assert "OptimiserChain(*rules)" in heads
    assert "MixedPrecision(rule, dtype=float32)" in heads
    assert all(re.fullmatch(r"    [A-Z].*\.", text) for text in texts)


def test_a_training_that_diverges_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--rule", "OptimiserChain(WeightDecay(10), Descent(1e3))"]) == 1
    assert "the loss is no longer finite after" in capsys.readouterr().out


def test_an_interrupted_training_leaves_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optimisers.demo.digits.load", interrupted)
    assert cli.main([]) == 130


def test_every_image_comes_once_before_any_comes_twice() -> None:
    chosen = np.concatenate(list(islice(digits.batches(10, 4, 5, seed=0), 5)))
    assert sorted(chosen[:10]) == list(range(10))
    assert sorted(chosen[10:]) == list(range(10))
    assert all(len(batch) == 4 for batch in digits.batches(3, 4, 6, seed=0))


def test_a_quarter_of_each_digit_is_held_out() -> None:
    data = digits.load(0)
    assert data.images.shape == (1347, 64)
    assert data.images.dtype == np.float32
    assert (data.images.min(), data.images.max()) == (0, 1)
    train_counts, test_counts = np.bincount(data.labels), np.bincount(data.test_labels)
    # 0.01: a class of 174 images splits into whole images only.
    np.testing.assert_allclose(test_counts / (train_counts + test_counts), 0.25, atol=0.01)


@pytest.mark.parametrize(("argv", "code"), [(["--steps", "20"], 0), (["--steps", "x"], 2)])
def test_the_module_runs_as_a_program(argv: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "optimisers", *argv],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 0:
        accuracy_in(done.stdout)
