"""The picture of a training: the loss of each step, and the accuracy on held-out images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from optimisers.race import new_figure

from .training import Run

BLUE, PALE = "#1f5fa8", "#9dbfe6"


def draw(run: Run, title: str, file: Path) -> None:
    """Draw loss and accuracy over the steps, side by side, into a file."""
    figure = new_figure(9, 4)
    left, right = figure.subplots(1, 2)
    figure.suptitle(title, wrap=True)

    steps = np.arange(1, len(run.losses) + 1)
    left.semilogy(steps, run.losses, color=PALE, linewidth=1, label="each batch")
    width = min(25, len(run.losses))
    smooth = np.convolve(run.losses, np.full(width, 1 / width), "valid")
    left.semilogy(steps[width - 1 :], smooth, color=BLUE, label=f"mean of {width}")
    left.set(title="Loss on the training images", xlabel="step", ylabel="cross-entropy (nats)")
    left.legend()

    at, values = zip(*run.accuracies, strict=True)
    right.plot(at, values, color=BLUE, marker="o", markersize=3)
    right.annotate(
        f"{values[-1]:.1f} %", (at[-1], values[-1]), xytext=(0, -16), textcoords="offset points",
        ha="right", color=BLUE,
    )  # fmt: skip
    right.set(title="Held-out images", xlabel="step", ylabel="accuracy (%)", ylim=(0, 102))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)
