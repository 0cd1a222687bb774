"""Many devices: the checks of `devices.py` on eight of them, and a training over two processes.

How many devices there are is settled when JAX starts, so all of it runs in processes of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .devices import CHECKS, KINDS

ROOT = Path(__file__).parents[1]


def started(module: str, *args: str, devices: int) -> subprocess.Popen[str]:
    # The options of the run around it, such as two workers, are not for the run on a page.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", module, *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    try:
        out, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, out + errors
    return out


@pytest.fixture(scope="module")
def failures() -> Any:
    return json.loads(finished(started("tests.devices", devices=8)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS)
def test_on_eight_devices(check: str, kind: str, failures: Any) -> None:
    failure = failures[f"{check}-{kind}"]
    assert not failure, failure


def test_the_page_runs_on_eight_devices() -> None:
    page = "docs/how-to/devices.md"
    finished(started("pytest", "-q", "-p", "no:cacheprovider", page, devices=8))


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    pair = [started("tests.processes", str(two), address, "2", me, devices=1) for me in "01"]
    for process in pair:
        finished(process)
    finished(started("tests.processes", str(one), devices=1))
    found, expected = np.load(two), np.load(one)
    assert sorted(found) == sorted(expected)
    for name in expected:
        assert np.abs(expected[name]).max() > 0.01  # 20 steps of 0.01: all have moved
        # Sums over halves of a batch round differently, and Adam divides small by small.
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-4)
