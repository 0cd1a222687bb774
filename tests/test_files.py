"""Files of a state: atomic, checked, and safe against whatever stands in them."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import pytest
import safetensors.numpy
from hypothesis import given, strategies as st

from optimisers import (
    AccumGrad,
    Adam,
    ClipNorm,
    Momentum,
    OptimiserChain,
    RMSProp,
    adjust,
    get_path,
    load,
    save,
    setup,
    update,
)
from optimisers.errors import (
    ArgumentError,
    MissingLibraryError,
    StateError,
    StructureError,
)

from .trees import assert_same, grads_like


def test_a_crash_while_writing_leaves_the_old_file(file: Path, monkeypatch: Any) -> None:
    state = setup(Adam(), {"w": np.ones(2)})
    save(file, state)
    before = file.read_bytes()

    def full(*args: Any) -> None:
        Path(args[1]).write_bytes(b"half of it")
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(OSError, match=r"cannot write .*No space left on device"):
        save(file, state)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]
    with pytest.raises(FileNotFoundError):
        save(file.parent / "no" / "folder", state)


FULL = """
import resource, signal, sys, numpy as np, optimisers
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    optimisers.save(sys.argv[1], optimisers.setup(optimisers.Adam(), {"w": np.ones(9999)}))
except OSError as error:
    print(error)
"""


def test_a_disk_that_is_full_is_an_error_and_leaves_the_old_file(file: Path) -> None:
    save(file, setup(Adam(), {"w": np.ones(2)}))
    before = file.read_bytes()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(file)], env=env, capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it is not a regular file"):
        save(tmp_path, setup(Adam(), {"w": np.ones(2)}))
    with pytest.raises(OSError, match="it is not a regular file"):
        save(os.devnull, setup(Adam(), {"w": np.ones(2)}))


WRITER = """
import sys, numpy as np, optimisers
model = {"w": np.ones(200_000)}
state = optimisers.setup(optimisers.Momentum(), model)
number = 0
while True:
    number += 1
    state = optimisers.set_path(state, "w/state", np.full(200_000, float(number)))
    state = optimisers.set_path(state, "w/steps", number)
    optimisers.save(sys.argv[1], state)
    print(number, flush=True)
"""


def test_killing_the_writer_leaves_a_whole_file(file: Path) -> None:
    model = {"w": np.ones(200_000)}
    fresh = setup(Momentum(), model)
    rng = random.Random(0)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True, env=env
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.05))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
        writer.wait()
        loaded = load(file, fresh)
        number = get_path(loaded, "w/steps")
        assert number >= len(rest.splitlines())
        np.testing.assert_array_equal(loaded["w"].state, float(number))


def saved_bytes(file: Path) -> tuple[bytes, Any]:
    model = {"w": np.linspace(0, 1, 5), "v": jnp.ones((2, 2))}
    state, _ = update(setup(Adam(), model), model, model)
    save(file, state)
    return file.read_bytes(), state


def test_flipped_and_cut_bytes_are_errors(file: Path) -> None:
    data, state = saved_bytes(file)
    leaves = jax.tree.map(np.array, jax.tree.leaves(state))
    rng = random.Random(0)
    wrong = [data[:n] for n in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1)]
    wrong += [data + b"x", data[8:], b"\xff" * 8 + data[8:]]
    for at in sorted(rng.sample(range(len(data)), 300)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        wrong.append(bytes(flipped))
    for one in wrong:
        file.write_bytes(one)
        with pytest.raises(StateError, match="cannot load"):
            load(file, state)
    assert_same(jax.tree.leaves(state), leaves)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_error_and_no_crash(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x"
        file.write_bytes(data)
        with pytest.raises(StateError, match="cannot load"):
            load(file, setup(Adam(), {"w": np.ones(2)}))


def test_foreign_and_hostile_files(file: Path) -> None:
    state = setup(Adam(), {"w": np.ones(2)})
    file.write_bytes(pickle.dumps(state))
    with pytest.raises(StateError, match="cut short, damaged, or no safetensors file"):
        load(file, state)
    np.savez(file.with_suffix(".npz"), w=np.ones(2))
    with pytest.raises(StateError):
        load(file.with_suffix(".npz"), state)
    safetensors.numpy.save_file({"w": np.ones(2)}, file)
    with pytest.raises(StateError, match=r"not written by optimisers.save.*format is 'nothing'"):
        load(file, state)
    for metadata in (
        {"format": "optimisers 9"},
        {"format": "optimisers 1"},
        {"format": "optimisers 1", "head": "[" * 100_000, "checksum": "0"},
        {"format": "optimisers 1", "head": "{}", "checksum": "0"},
    ):
        safetensors.numpy.save_file({"w": np.ones(2)}, file, metadata)
        with pytest.raises(StateError, match="cannot load"):
            load(file, state)
    with pytest.raises(FileNotFoundError):
        load(file.parent / "nothing", state)
    with pytest.raises(ArgumentError, match="expected a State"):
        load(file, {"w": 1})  # type: ignore[arg-type]


def test_a_missing_library_is_named_with_the_cure(file: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "optimisers\[save\]"'):
        save(file, setup(Adam(), {"w": np.ones(2)}))
    assert not file.exists()


def test_links_and_modes_are_kept(file: Path) -> None:
    state = setup(Adam(), {"w": np.ones(2)})
    save(file, state)
    file.chmod(0o640)
    link = file.parent / "link"
    link.symlink_to(file)
    save(str(link), adjust(state, 0.5))
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert load(file, state)["w"].rule == Adam(0.5)


# Other ways


def test_orbax_takes_the_state_as_it_is(tmp_path: Path) -> None:
    model = {
        "a": jnp.linspace(0, 1, 5), "b": {"c": jnp.ones((140, 130))}, "n": np.ones(3), "d": 3,
    }  # fmt: skip
    rule = OptimiserChain(ClipNorm(1.0), AccumGrad(2), RMSProp(centred=True))
    state = setup(rule, model)
    for i in range(3):
        state, model = update(state, model, grads_like(model, i))
    state = adjust(state, 0.5)
    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        found = checkpointer.restore(tmp_path / "state", setup(rule, model))
    assert jax.tree.structure(found) == jax.tree.structure(state)
    assert_same(jax.tree.leaves(found), jax.tree.leaves(state))
    grads = grads_like(model, 9)
    assert_same(update(found, model, grads), update(state, model, grads))


EIGHT = """
import sys, jax, numpy as np, jax.numpy as jnp, optimisers
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), "d")
assert len(jax.devices()) == int(sys.argv[2])
split, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
model = {"cut": jax.device_put(jnp.arange(64.0).reshape(16, 4), split),
         "all": jax.device_put(jnp.ones(3), whole),
         "big": jax.device_put(jnp.ones((160, 160)), split)}
state = optimisers.setup(optimisers.Adam(0.1), model)
if sys.argv[3] == "save":
    for _ in range(2):
        state, model = optimisers.update(state, model, model)
    optimisers.save(sys.argv[1], state)
else:
    state = optimisers.load(sys.argv[1], state)
    if len(jax.devices()) == 8:
        assert state["cut"].state[0].sharding == split, state["cut"].state[0].sharding
        assert state["big"].state[0].sharding == split
    state, model = optimisers.update(state, model, model)
print(float(state["cut"].state[0].sum()), float(state["all"].state[1].sum()),
      float(state["big"].state[1].sum()), optimisers.get_path(state, "cut/steps"))
"""


def test_a_checkpoint_of_eight_devices_loads_on_one_and_back(file: Path) -> None:
    def run(devices: int, what: str) -> list[float]:
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "JAX_PLATFORMS": "cpu",
        }
        done = subprocess.run(
            [sys.executable, "-c", EIGHT, str(file), str(devices), what],
            env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return list(map(float, done.stdout.split()))

    saved = run(8, "save")
    assert saved[-1] == 2
    one, eight = run(1, "load"), run(8, "load")
    np.testing.assert_allclose(one, eight, rtol=1e-5)  # sums over pieces, in another order
    assert one[-1] == 3


def test_paths_of_selection_that_match_nothing_raise() -> None:
    with pytest.raises(StructureError):
        get_path(setup(Adam(), {"w": np.ones(2)}), "x/steps")
