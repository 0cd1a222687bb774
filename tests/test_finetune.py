"""Fine-tuning on real images, and going on in a new process: see finetune.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np


def run(what: str, folder: Path) -> list[str]:
    script = Path(__file__).with_name("finetune.py")
    done = subprocess.run(
        [sys.executable, str(script), what, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_fine_tuning_goes_on_in_a_new_process_as_if_never_stopped(tmp_path: Path) -> None:
    head, whole = run("begin", tmp_path)
    assert float(head.split()[-1]) > 0.75
    assert float(whole.split()[3]) > 0.9
    assert run("resume", tmp_path) == [whole]
    first, second = np.load(tmp_path / "begin.npy"), np.load(tmp_path / "resume.npy")
    assert first.tobytes() == second.tobytes()
    assert float(whole.split()[4]) < 2e-4  # the schedule's end: its count went into the file
