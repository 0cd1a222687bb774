"""THE table of libraries: nothing else lists them. What it shows in the docs, the tests found."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .library import Case

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ad-libraries.md"
BEGIN, END = "<!-- found by tests/interop -->", "<!-- end of what was found -->"
HEAD = (
    "Asked with", "Version", "Parameters", "Gradients", "At the two places of a tied one",
    "At an unused branch", "`update_` writes", "Integers and functions", "As `jax.grad`, within",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One way of asking one library: a case in a file of `libraries/`.

    needs: the modules without which it cannot run. package: whose version is shown.
    """

    asked: str
    file: str
    case: str
    package: str
    needs: tuple[str, ...] = ()

    def load(self) -> Case:
        """Return the case; this imports the library."""
        cases: dict[str, Case] = importlib.import_module(
            f".libraries.{self.file}", __package__
        ).CASES
        return cases[self.case]

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.package)


ROWS = [
    Row("`jax.grad`, dicts", "jax_", "dicts", "jax"),
    Row("`jax.grad`, lists, tuples, named tuples, registered classes", "jax_", "registered", "jax"),
    Row("Equinox `filter_grad`", "equinox_", "filter_grad", "equinox"),
    Row("Equinox `filter_value_and_grad`", "equinox_", "filter_value_and_grad", "equinox"),
    Row("Flax NNX `nnx.grad`", "flax_", "nnx graph", "flax"),
    Row("Flax NNX `nnx.grad(graph=False)`", "flax_", "nnx tree", "flax"),
    Row("Flax Linen, dict", "flax_", "linen dict", "flax"),
    Row("Flax Linen, `FrozenDict`", "flax_", "linen FrozenDict", "flax"),
    Row("Haiku", "haiku_", "transform", "dm-haiku", ("haiku",)),
    Row("Penzai, `unbind_params`", "penzai_", "Parameter", "penzai", ("penzai",)),
    Row("Penzai, `unbind_params(freeze=True)`", "penzai_", "ParameterValue", "penzai", ("penzai",)),
    Row("HIPS Autograd", "autograd_", "grad", "autograd"),
    Row("torch `nn.Module`, `backward()`", "torch_", "module", "torch", ("torch",)),
    Row("`torch.autograd.grad`", "torch_", "autograd.grad", "torch", ("torch",)),
    Row("`torch.func.grad`", "torch_", "func.grad", "torch", ("torch",)),
    Row("`torch.func.functional_call`", "torch_", "functional_call", "torch", ("torch",)),
    Row("`tf.GradientTape`", "tensorflow_", "GradientTape", "tensorflow-cpu", ("tensorflow",)),
    Row("Keras on JAX", "keras_", "on JAX", "keras", ("keras",)),
    Row("tinygrad `backward()`", "tinygrad_", "backward", "tinygrad", ("tinygrad",)),
    Row("`mlx.core.grad`", "mlx_", "core.grad", "mlx", ("mlx",)),
    Row("`mlx.nn.value_and_grad`", "mlx_", "nn.value_and_grad", "mlx", ("mlx",)),
]


def line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def committed() -> dict[str, tuple[str, ...]]:
    """Return the rows of the page by their first cell."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [tuple(c.strip() for c in row.strip("|").split("|")) for row in text.split("\n") if row]
    return {row[0]: row for row in rows[2:]}


def write(rows: dict[str, Any]) -> None:
    """Put rows into the page, in the order of the table, and leave the other rows."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    held = {**committed(), **rows}
    lines = [line(HEAD), line(("---",) * len(HEAD))]
    lines += [line(held[row.asked]) for row in ROWS if row.asked in held]
    PAGE.write_text("\n".join([before + BEGIN, *lines, END]) + rest.partition(END)[2])
