"""A token file -> the batches to measure the loss on: always the same windows, of one shape."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from mlxgpt.config import require
from mlxgpt.data.batch import Batch
from mlxgpt.data.token_file import TokenFile
from mlxgpt.errors import DataError


def evaluation_batches(
    token_file: TokenFile, batch_size: int, context: int, max_tokens: int | None = None
) -> "EvaluationBatches":
    """Return the batches (B, T) over the split, made when they are asked for.

    Windows stand at stride T from the first token on, so that each token but the first is a target
    exactly once. The last window, and the last batch, are filled up with weight 0. With
    `max_tokens`, only `max_tokens // T` windows (at least one), evenly spaced over the split.
    Raises `DataError` if there are fewer than two tokens.
    """
    require(batch_size >= 1, f"'batch_size' must be at least 1, got {batch_size}")
    require(context >= 1, f"'context' must be at least 1, got {context}")
    require(
        max_tokens is None or max_tokens >= 1, f"'max_tokens' must be at least 1, got {max_tokens}"
    )
    if token_file.num_tokens < 2:
        raise DataError(
            f"the validation text has {token_file.num_tokens} tokens, but at least 2 are needed; "
            "give more text or a larger 'val_fraction'"
        )
    windows = -(-(token_file.num_tokens - 1) // context)
    chosen = windows if max_tokens is None else max(1, min(windows, max_tokens // context))
    starts = np.arange(chosen, dtype=np.int64) * windows // chosen * context
    return EvaluationBatches(token_file.tokens, starts, batch_size, context)


class EvaluationBatches(Sequence[Batch]):
    """A fixed sequence of batches, each cut out of the tokens when it is asked for."""

    def __init__(
        self, tokens: np.ndarray, starts: np.ndarray, batch_size: int, context: int
    ) -> None:
        self._tokens = tokens
        self._starts = starts
        self._batch_size = batch_size
        self._context = context

    @property
    def num_targets(self) -> int:
        """How many targets count in all."""
        return int(np.minimum(self._context, len(self._tokens) - 1 - self._starts).sum())

    def __len__(self) -> int:
        return (len(self._starts) + self._batch_size - 1) // self._batch_size

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | list[Batch]:
        if isinstance(index, slice):
            return [self._cut(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        return self._cut(index % len(self))

    def __iter__(self) -> Iterator[Batch]:
        return (self._cut(i) for i in range(len(self)))

    def _cut(self, index: int) -> Batch:
        shape = (self._batch_size, self._context)
        input_ids = np.zeros(shape, dtype=np.int32)
        targets = np.zeros(shape, dtype=np.int32)
        weights = np.zeros(shape, dtype=np.float32)
        first = index * self._batch_size
        for row, start in enumerate(self._starts[first : first + self._batch_size]):
            ids = self._tokens[start : start + self._context + 1]
            length = len(ids) - 1
            input_ids[row, :length] = ids[:-1]
            targets[row, :length] = ids[1:]
            weights[row, :length] = 1.0
        return Batch(input_ids, targets, weights)
