"""Settings and lengths -> the way in which examples are drawn: one class for each pack mode."""

from collections.abc import Sequence

import numpy as np

from mlxgpt.config import require
from mlxgpt.data.sft.config import SFTDataConfig
from mlxgpt.data.sft.drawing import Drawing
from mlxgpt.data.sft.drawings.inverse_length import InverseLength
from mlxgpt.data.sft.drawings.length_bins import LengthBins
from mlxgpt.data.sft.drawings.one_each import OneEach
from mlxgpt.data.sft.drawings.packed import Packed
from mlxgpt.errors import DataError

__all__ = ["InverseLength", "LengthBins", "OneEach", "Packed", "drawing_for"]


def drawing_for(
    config: SFTDataConfig, lengths: Sequence[int], rows_per_step: int, capacity: int, seed: int
) -> Drawing:
    """Return the drawing that `config` asks for.

    `lengths` are the numbers of ids of the examples, all at least 2; where examples are
    concatenated, of the pieces that `cut_into_pieces` made of them. `rows_per_step` rows make an
    optimizer step; a row of `sequence` has `capacity` places at most. Raises `ConfigError` if an
    example does not fit into a row, and `DataError` if there is none.
    """
    require(rows_per_step >= 1, f"a step needs at least one row, got {rows_per_step}")
    if len(lengths) == 0:
        raise DataError("there is no example to draw: every row was left out")
    ids = np.asarray(lengths, dtype=np.int64)
    assert ids.min() >= 2, "an example has an id and a next one"
    match config.pack_mode:
        case "none":
            return OneEach(len(ids), rows_per_step, seed)
        case "sequence" if config.packing == "concatenate":
            assert np.count_nonzero(ids != capacity + 1) <= 1, "these are no pieces"
            return OneEach(len(ids), rows_per_step, seed)
        case "sequence":
            return Packed(ids, rows_per_step, capacity, seed)
        case "sample":
            return InverseLength(ids, rows_per_step, seed)
        case "bucket":
            return LengthBins(ids, rows_per_step, config.num_bins, seed)
