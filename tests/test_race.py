"""Races: which way rules take, and what `python -m optimisers race` draws, prints and refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import optimisers
from optimisers import AdaDelta, Adam, Descent, Momentum
from optimisers.demo import cli
from optimisers.errors import RuleError
from optimisers.race import COURSES, RATES, pictured, race


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as stop:
        cli.main(["race", *argv])
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert len(err.splitlines()) == 1
    assert err.startswith("python -m optimisers race: ")
    assert out == ""
    return err


def test_a_race_is_update_after_update() -> None:
    lap = race(Momentum(0.01), on="valley", steps=3)
    point = np.array(COURSES["valley"].start, np.float32)
    state = optimisers.setup(Momentum(0.01), point)
    for expected, value in zip(lap.points, lap.values, strict=True):
        # float32: the slope is written out here and differentiated there.
        np.testing.assert_allclose(point, expected, rtol=1e-6)
        np.testing.assert_allclose(0.5 * (point[0] ** 2 + 50 * point[1] ** 2), value, rtol=1e-5)
        slope = point * np.array([1, 50], np.float32)
        state, point = optimisers.update(state, point, slope)


@pytest.mark.parametrize("on", COURSES)
def test_functions_are_zero_at_their_lowest_points_and_only_there(on: str) -> None:
    for bottom in COURSES[on].bottoms:
        assert float(COURSES[on].value(np.array(bottom, np.float32))) == 0
    assert float(COURSES[on].value(np.array(COURSES[on].start, np.float32))) > 1


def test_tuning_takes_the_best_of_the_rates_that_stay_in_the_picture() -> None:
    tuned = race(Descent(), on="valley", steps=20, tuned=True)
    assert tuned.rule.eta in RATES
    alone = race(tuned.rule, on="valley", steps=20)
    np.testing.assert_allclose(tuned.points, alone.points, rtol=1e-5)
    at = RATES.index(tuned.rule.eta)
    for eta in (RATES[at - 1], RATES[at + 1]):
        other = race(Descent(eta), on="valley", steps=20)
        left = bool((np.abs(other.points) > (2.0, 1.5)).any())
        assert left or np.log(other.values).mean() > np.log(alone.values).mean()


def test_a_rule_without_a_rate_runs_as_it_stands() -> None:
    assert race(AdaDelta(), steps=2, tuned=True).rule == AdaDelta()


def test_what_cannot_be_raced_is_said() -> None:
    with pytest.raises(ValueError, match="no function 'hill'; expected one of rosenbrock"):
        race(Adam(), on="hill")
    with pytest.raises(ValueError, match="no race of 0 steps"):
        race(Adam(), steps=0)
    with pytest.raises(RuleError, match="leaves the picture of 'rosenbrock' at each of 40 rates"):
        race(Momentum(rho=1.0), on="rosenbrock", steps=3000, tuned=True)


def test_a_race_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "race.png"
    argv = ["--rules", "Momentum", "Descent(0.01)", "--on", "valley", "saddle", "--steps", "20"]
    assert cli.main(["race", *argv, "--out", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "valley, value after 20 steps"
    assert "Descent(eta=0.01)" in lines[2]
    assert lines[-1] == f"race drawn into {file}"
    from matplotlib.image import imread

    picture = imread(file)
    assert picture.shape[1] > picture.shape[0] > 500
    colours = {tuple(c) for c in (picture.reshape(-1, picture.shape[2])[:, :3] * 255).astype(int)}
    assert {(0x0B, 0x62, 0xA4), (0xC8, 0x51, 0x1B)} <= colours


def test_stars_are_seen_and_so_are_values_that_grow() -> None:
    laps = [race(rule, on="rosenbrock", steps=8) for rule in (Adam(100.0), Descent(0.1))]
    assert not np.isfinite(laps[1].values).all()
    path, curve = pictured({"rosenbrock": laps}).axes
    assert curve.get_ylim()[1] > max(lap.values[np.isfinite(lap.values)].max() for lap in laps)
    star = next(line for line in path.lines if line.get_marker() == "*")
    assert all(star.zorder > line.zorder for line in path.lines if line is not star)


def test_digits_are_raced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "digits.svg"
    argv = ["--rules", "Adam", "Descent(0.01)", "--on", "digits", "--steps", "30"]
    assert cli.main(["race", *argv, "--out", str(file)]) == 0
    assert "%  Adam(eta=0.01" in capsys.readouterr().out
    assert file.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--rules", "Adma"], "there is no rule Adma; did you mean Adam?"),
        (["--rules", "Adam(-1)"], "eta must be"),
        (["--rules", *["Adam"] * 9], "cannot draw 9 rules; expected 8 at most"),
        (["--rules", "Adam", "--on", "hill"], "invalid choice: 'hill'"),
        (["--rules", "Adam", "--on", "digits", "valley"], "run them by themselves"),
        (["--rules", "Adam", "--steps", "0"], "expected a whole number from 1 to 100000, got '0'"),
        (["--rules"], "expected at least one argument"),
        ([], "the following arguments are required: --rules"),
        (["--rules", "Adam", "--out", "race.docx"], "its name must end in"),
        (["--rules", "Adam", "--out", "nowhere/race.png"], "there is no folder 'nowhere'"),
    ],
)
def test_bad_options_get_one_line(
    argv: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [] if "--out" in argv else ["--out", str(tmp_path / "race.png")]
    assert message in refusal(capsys, *argv, *out)


def test_a_picture_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the following arguments are required: --out" in refusal(capsys, "--rules", "Adam")


def test_without_matplotlib_the_line_that_installs_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = refusal(capsys, "--rules", "Adam", "--out", "race.png")
    assert line.endswith('matplotlib is not installed; python -m pip install "optimisers[demo]"\n')


def test_a_full_disk_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("optimisers.race.draw", full)
    file = tmp_path / "race.png"
    with pytest.raises(SystemExit) as stop:
        cli.main(["race", "--rules", "Descent(0.1)", "--steps", "1", "--out", str(file)])
    assert stop.value.code == 2
    assert f"cannot draw to {str(file)!r}: no space" in capsys.readouterr().err
