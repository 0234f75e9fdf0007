"""Rows of examples -> batches: padded on the right, packed examples kept apart, cut to a budget.

What is learned and what counts goes by place, never by the value of an id, so that a padding id
that is also the end-of-text token, or stands in a text, changes nothing.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from mlxgpt.config import require
from mlxgpt.data.batch import Batch
from mlxgpt.data.sft.example import Example

MULTIPLE = 16
"""Rows are padded to a multiple of this many places, for few shapes and little padding."""


def to_batch(rows: Sequence[Sequence[Example]], *, multiple: int = MULTIPLE) -> Batch:
    """Return `rows` as one batch (B, T), T being the longest row, rounded up to `multiple`.

    An example of n ids takes n - 1 places: each but the last id, with the next one as its target.
    The target counts 1 if it is supervised, else 0, so none reaches over the border of two
    examples. Padded places have id 0, target 0 and weight 0. Where some row holds more than one
    example, segments number the examples of each row from 1, and padding is segment 0.
    """
    assert len(rows) > 0
    length = -(-max(map(row_places, rows)) // multiple) * multiple
    input_ids = np.zeros((len(rows), length), dtype=np.int32)
    targets = np.zeros_like(input_ids)
    weights = np.zeros(input_ids.shape, dtype=np.float32)
    segments = np.zeros_like(input_ids)
    for r, row in enumerate(rows):
        start = 0
        for number, example in enumerate(row, start=1):
            stop = start + example.length - 1
            input_ids[r, start:stop] = example.ids[:-1]
            targets[r, start:stop] = example.ids[1:]
            weights[r, start:stop] = example.supervised[1:]
            segments[r, start:stop] = number
            start = stop
    packed = any(len(row) > 1 for row in rows)
    filled = sum(map(row_places, rows))
    return Batch(input_ids, targets, weights, segments if packed else None, filled)


def micro_batches(
    rows: Sequence[Sequence[Example]],
    *,
    rows_at_once: int | None = None,
    tokens_at_once: int | None = None,
    multiple: int = MULTIPLE,
) -> list[Batch]:
    """Cut the rows of a step into batches of at most so many rows, and so many places.

    Places include padding. Rows of like length go together, the longest first: the step's loss is
    a sum over its targets and knows no order. A row longer than `tokens_at_once` is a batch of its
    own. None: no limit.
    """
    require(rows_at_once is None or rows_at_once >= 1, "a batch needs at least one row")
    require(tokens_at_once is None or tokens_at_once >= 1, "a batch needs at least one place")
    ordered = sorted(rows, key=row_places, reverse=True)
    groups: list[list[Sequence[Example]]] = []
    most = 0
    for row in ordered:
        if not groups or len(groups[-1]) == most:
            groups.append([])
            length = -(-row_places(row) // multiple) * multiple
            most = len(ordered) if rows_at_once is None else rows_at_once
            if tokens_at_once is not None:
                most = max(1, min(most, tokens_at_once // length))
        groups[-1].append(row)
    return [to_batch(group, multiple=multiple) for group in groups]


def validation_batches(
    examples: Sequence[Example],
    rows: int,
    max_tokens: int | None = None,
    *,
    tokens_at_once: int | None = None,
    multiple: int = MULTIPLE,
) -> list[Batch]:
    """Return the batches to measure the loss on: one example a row, `rows` rows at most.

    At most `max_tokens` ids (None: all), but at least one example, spread evenly over `examples`
    whatever their lengths. Which ones they are depends on nothing else, so sums over all batches
    are the same however examples are drawn for training, and however many rows a batch has.
    """
    require(max_tokens is None or max_tokens >= 1, "validation needs at least one token")
    if not len(examples):
        return []
    lengths = np.array([example.length for example in examples])
    chosen = range(len(examples))
    if max_tokens is not None:
        chosen = spread(lengths, max_tokens)
    return micro_batches(
        [[examples[i]] for i in chosen],
        rows_at_once=rows,
        tokens_at_once=tokens_at_once,
        multiple=multiple,
    )


def spread(lengths: np.ndarray, most: int) -> Sequence[int]:
    """Return evenly spaced indices of about as many items as have `most` in all, never more.

    The first one is always among them.
    """
    count = len(lengths)
    while True:
        chosen = np.arange(count, dtype=np.int64) * len(lengths) // count
        total = int(lengths[chosen].sum())
        if total <= most or count == 1:
            return chosen.tolist()
        count = max(1, min(count - 1, count * most // total))


def row_places(row: Iterable[Example]) -> int:
    """Return how many places the examples of a row take."""
    return sum(example.length - 1 for example in row)
