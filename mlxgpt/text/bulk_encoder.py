"""Stretches of text -> their ids by the kernels: what `OwnEngine` uses for megabytes of text.

The twin of `PreTokenizer.split` and `BPEModel.encode_words` together, from any number of threads.
"""

from collections.abc import Callable
from typing import final

import numpy as np

from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.dropout import Dropout
from mlxgpt.text.compiled.encoder import CompiledEncoder
from mlxgpt.text.compiled.split_rules import rule_for
from mlxgpt.text.compiled.splitter import ends_of_words
from mlxgpt.text.pipeline.pre_tokenizers import PreTokenizer, SpaceBorder


@final
class BulkEncoder:
    """A BPE model and its way of cutting words, ready for the kernels. Imports numba."""

    def __init__(self, model: BPEModel, pre_tokenizer: PreTokenizer) -> None:
        """Build the tables, and see which way of finding the words is the quickest."""
        self._encoder = CompiledEncoder(
            model.byte_ids,
            model.pairs,
            model.products,
            char_ids=model.char_ids,
            whole_tokens=model.tokens if model.ignore_merges else None,
        )
        self._rule = rule_for(pre_tokenizer.expressions or ())
        self._border = None if pre_tokenizer.steps else pre_tokenizer.border

    def encode(
        self, text: str, split: Callable[[], list[str]], dropout: Dropout | None, position: int
    ) -> tuple[np.ndarray, int]:
        """Return the ids of a stretch, int32 (n,), and the bytes of its words.

        `split` gives the words in the plain way, for where there is no quicker one.
        """
        if self._rule is not None:
            data, words = text.encode("utf-8"), self._rule
        elif self._border is not None:
            data = text.encode("utf-8")
            words = ends_at_border(data, self._border)
        else:
            pieces = split()
            data = "".join(pieces).encode("utf-8")
            words = ends_of_words(pieces, data)
        return self._encoder.encode(data, words, dropout, position), len(data)


def ends_at_border(data: bytes, border: SpaceBorder) -> np.ndarray:
    """Return the ends in bytes, int64 (words,), of the words that `border` cuts from `data`."""
    content = np.frombuffer(data, np.uint8)
    begins = _places(content, border.marker.encode("utf-8"))
    for character in border.joined:
        joined = character.encode("utf-8")
        begins = np.setdiff1d(begins, _places(content, joined) + len(joined), assume_unique=True)
    return np.append(begins[begins > 0], len(data)) if data else begins


def _places(content: np.ndarray, wanted: bytes) -> np.ndarray:
    """Return where one character begins, int64: in UTF-8 its bytes are found nowhere else."""
    n = max(0, content.size - len(wanted) + 1)
    found = np.ones(n, np.bool_)
    for i, byte in enumerate(wanted):
        found &= content[i : i + n] == byte
    return np.flatnonzero(found)
