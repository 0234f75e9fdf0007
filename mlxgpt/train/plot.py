"""metrics.jsonl -> loss.png: training and validation loss, and bits per byte."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlxgpt.atomic import new_file
from mlxgpt.text import repair_surrogates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRAIN, _VAL, _PAPER = "#2a6f97", "#d1495b", "#ffffff"


def plot_loss(metrics: list[dict[str, Any]], path: Path, title: str) -> None:
    """Draw the losses over the steps into a PNG at `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # heavy; wanted once a run
    from matplotlib.figure import Figure

    steps = np.array([r["step"] for r in metrics if "loss" in r])
    losses = np.array([r["loss"] for r in metrics if "loss" in r])
    val = [(r["step"], r["val_loss"], r["bits_per_byte"]) for r in metrics if "val_loss" in r]
    figure = Figure(figsize=(9, 5.2), dpi=140, facecolor=_PAPER)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, losses, color=_TRAIN, alpha=0.22, linewidth=0.8)
    axes.plot(steps, smooth(losses), color=_TRAIN, linewidth=1.8, label="training (smoothed)")
    if val:
        at, loss, bits = zip(*val, strict=True)
        axes.plot(at, loss, "o-", color=_VAL, linewidth=1.8, markersize=4.5, label="validation")
        axes.annotate(
            f"{loss[-1]:.3f}" + (f"\n{bits[-1]:.3f} bits/byte" if bits[-1] else ""),
            (at[-1], loss[-1]),
            xytext=(-8, 14),
            textcoords="offset points",
            ha="right",
            color=_VAL,
            fontsize=9,
            fontweight="bold",
        )
        if bits[-1]:
            _bits_axis(axes, bits[-1] / loss[-1])
    if len(losses) > 50:  # the first steps would flatten all that follows
        axes.set_ylim(top=float(losses[len(losses) // 50 :].max()) * 1.03)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    # A name of a file may hold a dollar sign, or bytes that are no text.
    axes.set_title(repair_surrogates(title), loc="left", fontsize=11, parse_math=False)
    axes.grid(color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    axes.margins(x=0.02)
    figure.tight_layout()
    with new_file(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a script that the font does not know is drawn as boxes
        figure.savefig(temporary)


def _bits_axis(axes: "Axes", scale: float) -> None:
    """Show bits per byte on the right: for one tokenizer and text the scales differ by a factor."""
    there, back = (lambda y: np.asarray(y) * scale), (lambda y: np.asarray(y) / scale)
    right = axes.secondary_yaxis("right", functions=(there, back))
    right.set_ylabel("bits per byte (validation)", color="#666666")
    right.tick_params(colors="#666666")


def smooth(values: np.ndarray, half_life: float = 0.005) -> np.ndarray:
    """Return an exponential mean of `values` (n,), bias-corrected; `half_life` is a share of n."""
    keep = 0.5 ** (1 / max(1.0, half_life * len(values)))
    out, mean, weight = np.empty(len(values)), 0.0, 0.0
    for i, value in enumerate(values):
        mean, weight = keep * mean + (1 - keep) * value, keep * weight + (1 - keep)
        out[i] = mean / weight
    return out
