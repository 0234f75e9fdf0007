"""What one step of training sees: rows of ids, already shifted, with the weight of each target."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Batch:
    """`targets[b, t]` is what should follow `input_ids[b, :t + 1]`. All arrays are (B, T)."""

    input_ids: np.ndarray
    """int32."""
    targets: np.ndarray
    """int32. A padded place has the valid id 0 and the weight 0: MLX knows no ignored target."""
    loss_weights: np.ndarray
    """float32: how much each target counts."""
    segment_ids: np.ndarray | None = None
    """int32, equal within one packed example; None if a row is one text."""
    num_tokens: int | None = None
    """Places that hold text; None: all of them."""

    def __post_init__(self) -> None:
        arrays = (self.input_ids, self.targets, self.loss_weights)
        assert self.input_ids.ndim == 2
        assert all(a.shape == self.input_ids.shape for a in arrays)
        assert [a.dtype.name for a in arrays] == ["int32", "int32", "float32"]
        if self.segment_ids is not None:
            assert self.segment_ids.shape == self.input_ids.shape
            assert self.segment_ids.dtype == np.int32

    @property
    def shape(self) -> tuple[int, int]:
        """(B, T)."""
        rows, length = self.input_ids.shape
        return rows, length

    @property
    def filled(self) -> int:
        """Number of places that hold text."""
        return self.input_ids.size if self.num_tokens is None else self.num_tokens

    def rows(self, start: int, stop: int) -> "Batch":
        """Return the rows `start` to `stop - 1` as a batch of their own, without a copy.

        How many of its places are filled is not known of it.
        """
        return Batch(
            self.input_ids[start:stop],
            self.targets[start:stop],
            self.loss_weights[start:stop],
            None if self.segment_ids is None else self.segment_ids[start:stop],
        )


def batch_bytes(batch: Batch, token_byte_lengths: np.ndarray) -> float:
    """Return how many bytes of text the weighted targets stand for: nats become bits per byte.

    `token_byte_lengths` (V,) has 0 for special tokens: predicting them costs bits, but they are no
    text. A target of weight w counts w times.
    """
    return float(np.sum(token_byte_lengths[batch.targets] * batch.loss_weights, dtype=np.float64))
