"""Counts of draws by length, mode by mode -> a PNG: what is drawn, what it brings, how evenly."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlxgpt.atomic import new_file
from mlxgpt.text import repair_surrogates

if TYPE_CHECKING:
    from mlxgpt.data.sft.histogram import Histogram

# Okabe and Ito's colours, which colour-blind people can tell apart; each mode keeps its own.
_COLOURS = {"none": "#000000", "sequence": "#cc79a7", "sample": "#0072b2", "bucket": "#d55e00"}


def plot_histograms(drawn: "Sequence[tuple[str, Histogram]]", title: str, path: Path) -> None:
    """Draw pairs of (pack mode, counts), all with the same bins, to a PNG at `path`.

    The first one is filled, the others are lines.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # heavy; rarely wanted
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(14, 5.3), dpi=130, facecolor="#ffffff")
    FigureCanvasAgg(figure)
    frequency, tokens, evenness = figure.subplots(1, 3)
    _draw(frequency, [(name, c, c.frequency) for name, c in drawn])
    frequency.set_ylabel("share of the draws")
    frequency.set_title("Frequency: which rows are drawn", loc="left", fontsize=11)
    _draw(tokens, [(name, c, c.token_share) for name, c in drawn])
    tokens.set_ylabel("share of all tokens")
    tokens.set_title("Length × frequency: the tokens they bring", loc="left", fontsize=11)
    _draw(evenness, [(name, c, _relative(c)) for name, c in drawn])
    evenness.set_ylabel("tokens that one row brings (mean 1)")
    evenness.set_title("Length × frequency of a single row: flat is even", loc="left", fontsize=11)
    for axes in (frequency, tokens):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    for axes in (frequency, tokens, evenness):
        axes.set_xlabel("length of a row (tokens)")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
        axes.grid(color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = frequency.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="upper left",
        ncols=len(labels),
        frameon=False,
        bbox_to_anchor=(0.005, 0.945),
    )
    # A name of a file may hold a dollar sign, or bytes that are no text.
    figure.text(0.012, 0.95, _shortened(repair_surrogates(title)), fontsize=12, parse_math=False)
    with new_file(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a script that the font does not know is drawn as boxes
        figure.tight_layout(rect=(0, 0, 1, 0.89), w_pad=2.0)
        figure.savefig(temporary, format="png")


def _draw(axes: Any, series: "Sequence[tuple[str, Histogram, np.ndarray]]") -> None:
    """Draw steps over the bins, the first ones filled, and in front of the others."""
    for number, (name, counts, heights) in enumerate(series):
        label, colour = f"{name} (CoV {counts.variation:.3f})", _COLOURS[name]
        asked = number == 0
        if asked:
            axes.stairs(heights, counts.edges, color=colour, fill=True, alpha=0.22)
        axes.stairs(
            heights,
            counts.edges,
            color=colour,
            linewidth=2.4 if asked else 1.4,
            zorder=4 if asked else 3,
            label=label,
        )


def _relative(counts: "Histogram") -> np.ndarray:
    """Return `per_example` over its mean; bins without rows stay empty."""
    values = counts.per_example
    return values / np.nanmean(values) if np.nansum(values) > 0 else values


def _shortened(title: str, longest: int = 70) -> str:
    return title if len(title) <= longest else f"…{title[1 - longest :]}"
