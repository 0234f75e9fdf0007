"""Lengths and a drawing -> how often each range of lengths is drawn, and how many ids that gives.

The question of a fine-tuning on rows of very different lengths: does each length get the same
say? `Histogram.variation` answers with one number: 0 if each length brings as many ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlxgpt.data.sft.drawing import Drawing


@dataclass(frozen=True, eq=False)
class Histogram:
    """What so many draws were, bin by bin: K bins, `edges[k] <= length < edges[k + 1]`."""

    edges: np.ndarray
    """(K + 1,) int64, ascending."""
    examples: np.ndarray
    """(K,) int64: how many examples there are."""
    draws: np.ndarray
    """(K,) int64: how often one of them was drawn."""
    expected: np.ndarray
    """(K,) float64: how often that would be by their shares."""
    tokens: np.ndarray
    """(K,) int64: sum of length x draws."""
    per_example: np.ndarray
    """(K,) float64: length x draws of an example, averaged over the examples of each length, then
    over the lengths that there are in the bin; nan where there is none."""

    @property
    def frequency(self) -> np.ndarray:
        """(K,): which part of the draws fell into the bin."""
        return self.draws / max(1, int(self.draws.sum()))

    @property
    def token_share(self) -> np.ndarray:
        """(K,): which part of all ids came from the bin: length x frequency, made to sum to 1."""
        return self.tokens / max(1, int(self.tokens.sum()))

    @property
    def variation(self) -> float:
        """Coefficient of variation of `per_example`: population deviation / mean, over the bins in
        which there are examples."""
        values = self.per_example[self.examples > 0]
        return float(values.std() / values.mean()) if values.mean() > 0 else 0.0


def counts_of(drawing: Drawing, num_examples: int, draws: int) -> np.ndarray:
    """Return how often each example is among the first `draws` draws, int64 (N,)."""
    assert draws >= 1
    drawn: list[int] = []
    step = 0
    while len(drawn) < draws:
        for row in drawing.rows(step):
            drawn += row
        step += 1
    return np.bincount(drawn[:draws], minlength=num_examples)


def histogram(
    lengths: Sequence[int], drawing: Drawing, draws: int, edges: Sequence[int] | None = None
) -> Histogram:
    """Count the first `draws` draws from examples of `lengths` ids.

    `edges` are whole numbers, ascending, the last one above the longest example; None: 20 bins of
    about equal width between the shortest and the longest (fewer, if there are fewer lengths).
    """
    counts = counts_of(drawing, len(lengths), draws)
    return count_by_length(lengths, counts, drawing.shares, edges)


def count_by_length(
    lengths: Sequence[int],
    counts: np.ndarray,
    shares: np.ndarray,
    edges: Sequence[int] | None = None,
) -> Histogram:
    """Do the same for draws that were counted already: `counts` of each example, (N,).

    `shares` (N,) sum to 1: which part of all draws an example should have.
    """
    ids = np.asarray(lengths, dtype=np.int64)
    borders = even_edges(ids) if edges is None else np.asarray(edges, dtype=np.int64)
    assert np.all(np.diff(borders) > 0)
    assert borders[0] <= ids.min() <= ids.max() < borders[-1]
    bins = len(borders) - 1
    bin_of = np.searchsorted(borders, ids, side="right") - 1
    known, which, times = np.unique(ids, return_inverse=True, return_counts=True)
    by_length = known * np.bincount(which, weights=counts) / times
    bin_of_length = np.searchsorted(borders, known, side="right") - 1
    distinct = np.bincount(bin_of_length, minlength=bins)
    sums = np.bincount(bin_of_length, weights=by_length, minlength=bins)
    tokens = np.zeros(bins, dtype=np.int64)
    drawn = np.zeros(bins, dtype=np.int64)
    np.add.at(tokens, bin_of, ids * counts)
    np.add.at(drawn, bin_of, counts)
    return Histogram(
        edges=borders,
        examples=np.bincount(bin_of, minlength=bins),
        draws=drawn,
        expected=np.bincount(bin_of, weights=shares, minlength=bins) * counts.sum(),
        tokens=tokens,
        per_example=np.where(distinct > 0, sums / np.maximum(distinct, 1), np.nan),
    )


def even_edges(lengths: np.ndarray, most: int = 20) -> np.ndarray:
    """Return the edges of at most `most` bins of about equal width that hold all `lengths`."""
    least, beyond = int(lengths.min()), int(lengths.max()) + 1
    bins = min(most, beyond - least)
    return least + (beyond - least) * np.arange(bins + 1, dtype=np.int64) // bins
