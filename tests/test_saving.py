"""Saving and loading: bit for bit, by path, atomic, and safe against any file."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from optimisers import (
    AccumGrad,
    Adam,
    AdamW,
    ClipNorm,
    Descent,
    MixedPrecision,
    Momentum,
    OptimiserChain,
    RMSProp,
    WeightDecay,
    adjust,
    freeze,
    get_path,
    load,
    load_state_dict,
    save,
    setup,
    state_dict,
    update,
    update_,
)
from optimisers.errors import (
    ArgumentError,
    MissingLibraryError,
    OptimiserWarning,
    StateError,
    StructureError,
)
from optimisers.rules.rule import Rule

from .cases import ALL, Case
from .trees import assert_same, grads_like, model_of_all_kinds


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.safetensors"


def small_model() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"a": jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), "b": rng.normal(size=4)}


@ALL
def test_save_load_go_on_is_never_stopped(case: Case, file: Path) -> None:
    model = small_model()
    state = setup(case.rule, model)
    for i in range(3):
        state, model = update(state, model, grads_like(model, i))
    save(file, state)
    loaded = load(file, setup(case.rule, small_model()))
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    assert_same(state_dict(loaded), state_dict(state))
    for i in range(2):
        grads = grads_like(model, 5 + i)
        loaded, again = update(loaded, model, grads)
        state, model = update(state, model, grads)
        assert_same(again, model)


def test_everything_is_kept_for_every_kind_of_storage(file: Path) -> None:
    model = model_of_all_kinds()
    model["complex"] = np.array([1 + 2j, 3])
    model["c64"] = jnp.array([1 + 2j, 3], jnp.complex64)
    model["empty"] = jnp.zeros((0, 3))
    state = setup(MixedPrecision(Adam(lambda n: 0.1 / (1 + n))), model)
    state, model = update(state, model, grads_like(model))
    state = freeze(adjust(state, epsilon=1e-6, where="list/0"), "big")
    save(file, state)
    fresh = setup(MixedPrecision(Adam(lambda n: 0.1 / (1 + n))), model)
    loaded = load(file, fresh)
    assert repr(loaded["big"]).count("frozen") == 1
    assert loaded["list"][0].hyperparameters["epsilon"] == 1e-6
    assert loaded["jax"].hyperparameters == state["jax"].hyperparameters
    assert [get_path(loaded, f"{p}/steps") for p in ("big", "half", "empty")] == [1, 1, 1]
    assert_same(state_dict(loaded), state_dict(state))
    grads = grads_like(model, 3)
    after, _ = update(state, model, grads)
    assert_same(state_dict(update_(loaded, model, grads)[0]), state_dict(after))


def test_a_state_dict_is_flat_and_plain() -> None:
    model = {"enc": [np.ones((2, 3), np.float32)], "a/b": {"w": np.ones(1)}}
    state = setup(OptimiserChain(WeightDecay(0.5), Momentum(0.1)), model)
    found = state_dict(state)
    assert found == {
        "a\\/b/w/param": "float64[1]",
        "a\\/b/w/rule": "OptimiserChain(rules=(WeightDecay(lambda_), Momentum(eta, rho)))",
        "a\\/b/w/frozen": False,
        "a\\/b/w/steps": 0,
        "a\\/b/w/hyperparameters/rules/0/lambda_": 0.5,
        "a\\/b/w/hyperparameters/rules/1/eta": 0.1,
        "a\\/b/w/hyperparameters/rules/1/rho": 0.9,
        "a\\/b/w/state/1": np.zeros(1),
        "enc/0/param": "float32[2, 3]",
        "enc/0/rule": "OptimiserChain(rules=(WeightDecay(lambda_), Momentum(eta, rho)))",
        "enc/0/frozen": False,
        "enc/0/steps": 0,
        "enc/0/hyperparameters/rules/0/lambda_": 0.5,
        "enc/0/hyperparameters/rules/1/eta": 0.1,
        "enc/0/hyperparameters/rules/1/rho": 0.9,
        "enc/0/state/1": pytest.approx(np.zeros((2, 3))),
    }
    json.dumps({k: v for k, v in found.items() if not isinstance(v, np.ndarray)})
    loaded = load_state_dict(state, found)
    found["enc/0/state/1"][:] = 7
    assert not np.any(loaded["enc"][0].state[1])
    assert not np.any(state["enc"][0].state[1])


def test_the_same_whatever_the_packing() -> None:
    model = {f"w{i}": jnp.full(3, i + 1.0) for i in range(60)}
    together = setup(Adam(), model)
    together, _ = update(together, model, model)
    apart = adjust(adjust(together, MixedPrecision(Adam()), "w1*"), Adam(), "w1*")
    halves = setup({"w1*": Adam(0.001), "**": Adam()}, model)
    found = state_dict(together)
    for state in (apart, load_state_dict(halves, found)):
        other = state_dict(state)
        assert other.keys() == found.keys()
        assert_same(other, found)


def test_assigned_by_path_not_by_order() -> None:
    model = {"x": np.ones(2), "y": np.ones(2)}
    state = setup(Momentum(), model)
    state, _ = update(state, model, {"x": np.ones(2), "y": np.full(2, 5.0)})

    class Other:
        def __init__(self) -> None:
            self.y, self.x = np.ones(2), np.ones(2)

    import optimisers

    optimisers.register(Other)
    loaded = load_state_dict(setup(Momentum(), Other()), state_dict(state))
    assert_same(loaded.x.state, state["x"].state)
    assert_same(loaded.y.state, state["y"].state)


def test_ties_are_saved_and_must_agree(file: Path) -> None:
    w = np.ones(2)
    tied = {"enc": w, "dec": w}
    state = setup(Adam(), tied)
    state, _ = update(state, tied, tied)
    save(file, state)
    v = np.ones(2)
    assert_same(load(file, setup(Adam(), {"enc": v, "dec": v}))["enc"].state, state["enc"].state)
    with pytest.raises(StateError, match="got one parameter at 'dec' and 'enc', expected at 'dec'"):
        load(file, setup(Adam(), {"enc": np.ones(2), "dec": np.ones(2)}))
    save(file, setup(Adam(), {"enc": np.ones(2), "dec": np.ones(2)}))
    with pytest.raises(StateError, match="got one parameter at 'dec', expected at 'dec' and 'enc'"):
        load(file, state)
    # The first place may be another one, where names are in another order.
    Pair = __import__("collections").namedtuple("Pair", "enc dec")
    loaded = load_state_dict(setup(Adam(), Pair(w, w)), state_dict(state))
    assert_same(loaded.enc.state, state["enc"].state)


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_changed(file: Path) -> None:
    model = {"a": np.ones(2), "b": np.ones(3), "c": np.ones(1), "d": np.ones(1)}
    state = setup({"c": AdamW(), "**": Adam()}, model)
    save(file, state)
    other = {"a": np.ones(4), "b": np.ones(3, np.float32), "c": np.ones(1), "e": np.ones(1)}
    target = setup({"c": AdamW(couple=False), "**": Adam()}, other)
    before = jax.tree.map(np.array, jax.tree.leaves(target))
    with pytest.raises(StateError) as caught:
        load(file, target)
    assert str(caught.value).splitlines() == [
        "what was saved does not fit the state:",
        '  model["a"]: got float64[2], expected float64[4]',
        '  model["b"]: got float64[3], expected float32[3]',
        '  model["c"]: got AdamW(eta, beta[2], lambda_, epsilon, couple=True), '
        "expected AdamW(eta, beta[2], lambda_, epsilon, couple=False)",
        '  model["e"]: missing',
        "  'd' is not in the state",
    ]
    assert_same(jax.tree.leaves(target), before)
    with pytest.warns(
        OptimiserWarning, match=r"(?s)kept from the state is:.*model\[\"a\"\].*'d'"
    ) as w:
        loaded = load(file, target, strict=False)
    assert len(w) == 1
    assert_same(jax.tree.leaves(loaded), before)


def test_what_fits_is_loaded_where_not_strict() -> None:
    model = {"a": np.ones(2), "b": np.ones(3)}
    state = setup(Momentum(0.5), model)
    state, _ = update(state, model, model)
    other = setup(Momentum(0.1), {"a": np.ones(2), "b": np.ones(4), "c": np.ones(1)})
    with pytest.warns(OptimiserWarning):
        loaded = load_state_dict(other, state_dict(state), strict=False)
    assert_same(loaded["a"].state, state["a"].state)
    assert [loaded[k].rule.eta for k in "abc"] == [0.5, 0.1, 0.1]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("w/frozen", 1, "got frozen = 1, expected True or False"),
        ("w/steps", -1, "got steps = -1, expected a count"),
        ("w/steps", True, "got steps = True"),
        ("w/hyperparameters/eta", "0.1", "got hyperparameters/eta = '0.1', expected a number"),
        ("w/hyperparameters/eta", -1.0, "eta must be finite and at least 0, got -1.0"),
        ("w/state/0", np.ones(3), r"got state/0 float64\[3\], expected float64\[2\]"),
        ("w/state/0", np.ones(2, np.float32), r"got state/0 float32\[2\], expected float64\[2\]"),
        ("w/state/0", None, "got state/0 object"),
        ("w/state/0", "x" * 5, "got state/0"),
        ("w/state/0", "missing", "state/0 is missing"),
        ("w/rule", "missing", "missing"),
        ("w/param", None, r"got None, expected float64\[2\]"),
        ("w/tied", "[[", "got one parameter at nothing, expected at 'w'"),
        ("v/w", 3, "'v/w' is unknown"),
    ],
)
def test_entries_that_are_nonsense_are_named(key: str, value: Any, message: str) -> None:
    state = setup(Adam(), {"w": np.ones(2)})
    found = state_dict(state)
    if isinstance(value, str) and value == "missing":
        del found[key]
    else:
        found[key] = value
    with pytest.raises(StateError, match=message):
        load_state_dict(state, found)


def test_more_of_what_is_wrong() -> None:
    state = setup(Adam(), {f"w{i}": np.ones(2) for i in range(30)})
    with pytest.raises(StateError, match="and 10 more"):
        load_state_dict(state, {})
    with pytest.raises(ArgumentError, match="expected what state_dict returned, got State"):
        load_state_dict(state, state)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected a State"):
        state_dict({"w": 1})  # type: ignore[arg-type]
    with pytest.raises(StateError, match="two are written '0'"):
        state_dict(setup(Adam(), {0: np.ones(1), "0": np.ones(1)}))
    with pytest.raises(StateError, match="is traced; call state_dict outside jit"):
        jax.jit(lambda s: state_dict(s)["a/steps"])(setup(Adam(), {"a": jnp.ones(1)}))
    scheduled = setup(Descent(lambda n: 0.1), {"w": np.ones(1)})
    with pytest.raises(StateError, match=r"got Descent\(eta\), expected Descent\(eta=schedule\)"):
        load_state_dict(scheduled, state_dict(setup(Descent(), {"w": np.ones(1)})))


def test_a_part_is_saved_with_its_own_paths(file: Path) -> None:
    model = {"enc": {"w": np.ones(2)}, "dec": {"w": np.ones(2)}}
    state, _ = update(setup(Momentum(), model), model, model)
    save(file, state["enc"])
    fresh = setup(Momentum(), model)
    loaded = load(file, fresh["dec"])
    assert_same(loaded["w"].state, state["enc"]["w"].state)
    assert not np.any(fresh["dec"]["w"].state)
    one = setup(Momentum(0.3), np.ones(2))
    assert load_state_dict(one, state_dict(one)).rule == Momentum(0.3)


def test_rules_with_a_state_of_any_kind(file: Path) -> None:
    @dataclass(frozen=True)
    class Odd(Rule):
        eta: float = 0.1

        def init(self, x: Any) -> Any:
            return {
                "a/b": jnp.zeros(3, jnp.bfloat16),
                "n": jnp.zeros((), jnp.int32),
                "key": (True,),
            }

        def apply(self, state: Any, x: Any, dx: Any) -> Any:
            return {**state, "n": state["n"] + 1, "a/b": state["a/b"] + 1}, self.eta * dx

    model = {"w": jnp.ones(2)}
    state, _ = update(setup(Odd(), model), model, model)
    save(file, state)
    loaded = load(file, setup(Odd(), model))
    assert_same(loaded["w"].state, state["w"].state)
    assert "w/state/a\\/b" in state_dict(state)


# Files


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
    orbax = pytest.importorskip("orbax.checkpoint")
    model = {
        "a": jnp.linspace(0, 1, 5), "b": {"c": jnp.ones((140, 130))}, "n": np.ones(3), "d": 3,
    }  # fmt: skip
    rule = OptimiserChain(ClipNorm(1.0), AccumGrad(2), RMSProp(centred=True))
    state = setup(rule, model)
    for i in range(3):
        state, model = update(state, model, grads_like(model, i))
    state = adjust(state, 0.5)
    with orbax.StandardCheckpointer() as checkpointer:
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
