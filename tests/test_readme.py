"""The README keeps its word: the example prints what it says, and the commands are these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_example_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = EXAMPLES
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    promised = re.findall(r"^print\(.*\)  # (.*)$", example, re.MULTILINE)
    assert promised
    assert capsys.readouterr().out.splitlines() == promised


def test_the_example_has_fifteen_lines() -> None:
    [example] = EXAMPLES
    assert len(example.splitlines()) <= 15


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("python -m optimisers", 'python -m pip install -e ".[demo]" && python -m optimisers'),
        ("python -m pytest", 'python -m pip install -e ".[test]" && python -m pytest'),
    ],
)
def test_two_commands_do_everything(words: str, command: str) -> None:
    # .ci/run runs the first line that holds these words.
    assert next(line for line in README.splitlines() if words in line) == command


def test_links_inside_the_project_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    inside = [link for link in links if "://" not in link]
    assert inside
    assert [link for link in inside if not (ROOT / link).exists()] == []


def test_the_comparison_is_part_of_the_whole_one() -> None:
    whole = (ROOT / "docs" / "explanation" / "comparison.md").read_text(encoding="utf-8")
    table = README.partition("## Compared")[2].partition("## More")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) > 8
    assert [row for row in rows if row not in whole.splitlines()] == []
    dated = re.search(r"As of .*", table)
    assert dated
    assert dated[0].partition(":")[0] in whole


def test_the_picture_is_there_and_small() -> None:
    [picture] = re.findall(r"^!\[.+\]\((.+)\)$", README, re.MULTILINE)
    assert 10_000 < (ROOT / picture).stat().st_size < 200_000
