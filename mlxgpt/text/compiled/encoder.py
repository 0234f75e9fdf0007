"""Bytes of a text -> its ids by byte-pair encoding, from many threads at once.

The compiled twin of `bpe/bpe_model.py`, with dropout as `bpe/dropout.py` defines it. It knows
no files, no added tokens and no strings.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import final

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.text.bpe.dropout import Dropout
from mlxgpt.text.compiled.drop_draws import draws_of
from mlxgpt.text.compiled.encode_kernel import BEGIN, DONE, OUT, WORD, encode_words
from mlxgpt.text.compiled.loads import U
from mlxgpt.text.compiled.memory import WINDOW, ThreadMemory
from mlxgpt.text.compiled.merge_tables import merge_tables
from mlxgpt.text.compiled.split_rules import SplitRule
from mlxgpt.text.compiled.splitter import word_ends
from mlxgpt.text.compiled.whole_words import no_wholes, whole_words


@final
class CompiledEncoder:
    """A BPE model ready for encoding. Immutable but for what each thread remembers."""

    def __init__(
        self,
        byte_ids: Sequence[int] | np.ndarray,
        merges: "Sequence[tuple[int, int]] | np.ndarray",
        products: Sequence[int] | np.ndarray,
        *,
        char_ids: Mapping[str, int] | None = None,
        whole_tokens: Sequence[bytes | None] | None = None,
        most_words: int = 1 << 18,
    ) -> None:
        """Build the tables; `merge_tables` says of what, and which errors it raises.

        `whole_tokens` (id -> bytes, or None) are words that are not merged (`ignore_merges`); they
        hold the bytes of every id. A thread remembers up to `most_words` words, with dropout in at
        most 300 bytes each, and then begins anew.
        """
        self._tables = merge_tables(
            np.asarray(byte_ids, np.int64),
            np.asarray(merges, np.int64),
            np.asarray(products, np.int64),
            char_ids,
        )
        self._wholes = no_wholes()
        self._most_words = most_words
        self._threads = threading.local()
        if whole_tokens is not None:
            apart = () if char_ids is None else np.asarray(byte_ids).tolist()
            self._wholes = whole_words(whole_tokens, apart, self.encode)
            self._threads = threading.local()  # without the words remembered in ignorance of them

    def encode(
        self,
        data: bytes,
        words: SplitRule | np.ndarray,
        dropout: Dropout | None = None,
        position: int = 0,
    ) -> np.ndarray:
        """Return the ids of `data`, int32 (n,).

        `words` is a rule, or the ends of the words in bytes, int (w,), ascending to len(data).
        `position` is where `data` begins in the text that the `dropout` is of.
        """
        memory = self._memory()
        padded = memory.padded(data)
        pieces: Iterable[np.ndarray]
        if isinstance(words, SplitRule):
            pieces = word_ends(padded, len(data), words, WINDOW, memory.ends)
        else:
            pieces = _pieces(words, len(data))
        rate, base = (float(dropout.p), dropout.base) if dropout is not None else (0.0, 0)
        draws, base = draws_of(rate), U(base)
        done: list[np.ndarray] = []
        begin = 0
        for ends in pieces:
            stop = int(ends[-1])
            out = memory.room(stop - begin + 1)
            state = memory.memory.state
            state[WORD], state[BEGIN], state[OUT] = 0, begin, 0
            while True:
                status = encode_words(
                    padded,
                    ends,
                    tuple(self._tables),
                    tuple(self._wholes),
                    tuple(memory.memory),
                    tuple(memory.scratch),
                    base,
                    position,
                    tuple(draws),
                    out,
                )
                if status == DONE:
                    break
                memory.enlarge(status)
            done.append(out[: state[OUT]].copy())
            begin = stop
        memory.tidy()
        if len(done) == 1:
            return done[0]
        return np.concatenate(done) if done else np.zeros(0, np.int32)

    def _memory(self) -> ThreadMemory:
        memory = getattr(self._threads, "memory", None)
        if memory is None:
            memory = self._threads.memory = ThreadMemory(self._most_words)
        return memory


def _pieces(ends: np.ndarray, size: int) -> Iterator[np.ndarray]:
    ends = np.ascontiguousarray(ends, np.int64)
    steps = np.diff(ends, prepend=0)
    if (ends[-1] if ends.size else 0) != size or (steps <= 0).any():
        raise TokenizerError(f"the ends of the words must ascend to {size}, the size of the text")
    for start in range(0, ends.size, WINDOW):
        yield ends[start : start + WINDOW]
