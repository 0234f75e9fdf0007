"""Measurements of tokenizers -> a PNG: bytes per token by kind of text, and the use of the ids."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlxgpt.atomic import new_file
from mlxgpt.text import repair_surrogates

if TYPE_CHECKING:
    from mlxgpt.text.measurement import Measurement

    Measured = Sequence[tuple[str, Measurement]]

# Okabe and Ito's colours, which colour-blind people can tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_LEGEND_SIGNS = 160
"""Letters that fit into a line of the legend."""
_LONGEST = 16
"""Bytes from which on tokens are drawn as one length."""


def plot_comparison(measured: "Measured", grouped_by: str | None, path: Path) -> None:
    """Draw the comparison of tokenizers, pairs of (name, what was measured), to a PNG at `path`.

    `grouped_by` says in words what the groups of texts are; without groups, the left half shows
    how long the tokens are that make up the text.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # heavy; rarely wanted
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), dpi=130, facecolor="#ffffff")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.grid(color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    if grouped_by is None:
        _draw_lengths(left, measured)
    else:
        _draw_groups(left, measured, grouped_by)
    _draw_use(right, measured)
    handles, labels = right.get_legend_handles_labels()
    columns = max(1, min(len(labels), _LEGEND_SIGNS // max(map(len, labels))))
    legend = figure.legend(handles, labels, loc="upper center", ncols=columns, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # the name of a folder may hold dollar signs
    rows = -(-len(labels) // columns)
    with new_file(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a script that the font does not know is drawn as boxes
        figure.tight_layout(rect=(0, 0, 1, 0.98 - 0.05 * rows))
        figure.savefig(temporary, format="png")


def _draw_groups(axes: Any, measured: "Measured", grouped_by: str) -> None:
    """Draw bars for each group of texts; where groups have no order, that with most text first."""
    groups = measured[0][1].groups
    names = list(groups)
    if not names[0].isdigit():  # tenths
        names.sort(key=lambda name: -groups[name].num_bytes)
    places = np.arange(len(names))
    width = 0.8 / len(measured)
    for i, (_, m) in enumerate(measured):
        heights = [m.groups[name].bytes_per_token for name in names]
        at = places + (i - (len(measured) - 1) / 2) * width
        bars = axes.bar(at, heights, width * 0.94, color=_colour(i))
        if len(names) * len(measured) <= 12:
            axes.bar_label(bars, fmt="%.2f", fontsize=9, color="#444444", padding=2)
    labels = [_label(name, 24) for name in names]
    slanted = sum(map(len, labels)) > 60
    axes.set_xticks(
        places, labels, rotation=20 if slanted else 0, ha="right" if slanted else "center"
    )
    for tick in axes.get_xticklabels():
        tick.set_parse_math(False)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(grouped_by)
    axes.set_ylabel("bytes of text per token")
    axes.set_title("What a token stands for: more is better", loc="left", fontsize=11)


def _draw_lengths(axes: Any, measured: "Measured") -> None:
    """Draw how much of the text is in tokens of 1, 2, ... bytes."""
    for i, (_, m) in enumerate(measured):
        num_bytes = np.bincount(
            np.minimum(m.byte_lengths, _LONGEST), m.counts * m.byte_lengths, _LONGEST + 1
        )
        shares = 100 * num_bytes[1:] / max(1, num_bytes.sum())
        axes.plot(range(1, _LONGEST + 1), shares, "o-", color=_colour(i), linewidth=1.8)
    ticks = range(1, _LONGEST + 1)
    axes.set_xticks(ticks, [*map(str, ticks[:-1]), f"{_LONGEST}+"])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("bytes of a token")
    axes.set_ylabel("% of the text in such tokens")
    axes.set_title("What the text is made of: further right is better", loc="left", fontsize=11)


def _draw_use(axes: Any, measured: "Measured") -> None:
    """Draw the share of each id in the tokens over its rank; the curve ends where use ends."""
    for i, (name, m) in enumerate(measured):
        counts = np.sort(m.counts[m.counts > 0])[::-1]
        ranks = np.arange(1, len(counts) + 1)
        shares = counts / max(1, counts.sum())
        use = f"{m.whole.bytes_per_token:.2f} bytes/token, {m.vocab_use:.0%} of the ids in use"
        label = f"{_label(name, 24)}: {use}"
        axes.plot(ranks, shares, color=_colour(i), linewidth=1.8, label=label)
        if len(counts):
            axes.plot(ranks[-1], shares[-1], "o", color=_colour(i), markersize=4.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("rank of the id by use")
    axes.set_ylabel("share of all tokens")
    axes.set_title("How often each id is used: the dot is the last one", loc="left", fontsize=11)


def _colour(i: int) -> str:
    return _COLOURS[i % len(_COLOURS)]


def _label(name: str, longest: int) -> str:
    name = repair_surrogates(name)  # the name of a file may hold bytes that are no text
    return name if len(name) <= longest else f"…{name[1 - longest :]}"
