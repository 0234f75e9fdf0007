"""Mapped text -> training batches whose every window is encoded afresh, as BPE-dropout needs it.

A window begins at a byte drawn uniformly from the text, moved to the start of its character. From
there the text is encoded until there are T + 1 ids. Where a document ends, the end-of-text id
follows and the next document begins, the first after the last. Each document's part is encoded by
itself, so nothing merges across a border, and no window is ever short.

Only as much text is encoded as the window may need, however long the document is. That cut falls
somewhere in a word, and what comes close before it may be encoded otherwise than in the whole text.
So ids count only if `MARGIN` bytes of text stand between them and the cut: a word of up to `MARGIN`
bytes at the cut never shows in the window. Where too few ids are left, the double is encoded.
"""

from typing import Any

import numpy as np

from mlxgpt.config import require
from mlxgpt.data.batch import Batch
from mlxgpt.data.encode import encode_text
from mlxgpt.data.text_map import TextMap
from mlxgpt.data.windows import check_shape
from mlxgpt.errors import DataError, MLXGPTError
from mlxgpt.seeding import derive
from mlxgpt.text import Tokenizer

MARGIN = 128
# How many places of the text are looked at, and how many bytes at each, to guess what a token has.
PROBES, PROBE_BYTES = 16, 1024


class StreamingWindows:
    """Batches (B, T) for one of `world_size` ranks: `batch(step)` is a function, without a state.

    Row r of rank k at step s is window (s * world_size + k) * B + r of one sequence, as in
    `WindowBatches`. Windows are drawn independently of each other. The ids of window w depend on
    the text, the tokenizer, the dropout, the seed, T and w, and on nothing else.
    """

    def __init__(
        self,
        text: TextMap,
        tokenizer: Tokenizer,
        batch_size: int,
        context: int,
        seed: int,
        *,
        dropout: float = 0.0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """`dropout` is the BPE-dropout rate. Raises `ConfigError` if the tokenizer has none."""
        check_shape(batch_size, context, rank, world_size)
        require(0 <= dropout <= 1, f"'dropout' must be between 0 and 1, got {dropout}")
        require(
            dropout == 0 or tokenizer.supports_dropout,
            f"this tokenizer can do no BPE-dropout ({tokenizer.no_dropout_reason}); "
            "set 'bpe_dropout' to 0",
        )
        self.text = text
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.context = context
        self.seed = seed
        self.dropout = dropout
        self.rank = rank
        self.world_size = world_size
        self.bytes_per_token = self._measure()

    @property
    def fingerprint(self) -> str:
        """Names the training text; a resumed run must find the same."""
        return self.text.fingerprint

    @property
    def identity(self) -> dict[str, Any]:
        """What the sequence of windows depends on; a resumed run must have the same."""
        return {
            "text": self.text.fingerprint,
            "num_bytes": self.text.num_bytes,
            "tokenizer": self.tokenizer.content_hash,
            "bpe_dropout": self.dropout,
            "context": self.context,
            "rows_per_step": self.batch_size * self.world_size,
            "seed": self.seed,
        }

    @property
    def bytes_per_window(self) -> int:
        """How many bytes of text are encoded for most of the windows."""
        return self._guess(self.context + 1)

    def epoch(self, step: int) -> float:
        """Return how often, on average, the text has been seen before `step` by all ranks together.

        An estimate, from `bytes_per_token`: nothing counts what a window takes.
        """
        ends = 0 if self.tokenizer.eot_id is None else self.text.num_documents
        per_pass = self.text.num_bytes / self.bytes_per_token + ends
        return step * self.batch_size * self.world_size * self.context / per_pass

    def batch(self, step: int) -> Batch:
        """Return this rank's batch of `step` (from 0): the same, whenever and wherever.

        Raises `DataError` naming the row and the place in the text for what cannot be encoded.
        """
        if step < 0:
            raise ValueError(f"a step is not negative, got {step}")
        first = (step * self.world_size + self.rank) * self.batch_size
        ids = np.empty((self.batch_size, self.context + 1), dtype=np.int32)
        for row in range(self.batch_size):
            self._fill(ids[row], first + row, f"row {row} of batch {step}")
        weights = np.ones((self.batch_size, self.context), dtype=np.float32)
        return Batch(ids[:, :-1], ids[:, 1:], weights)

    def _fill(self, ids: np.ndarray, window: int, name: str) -> None:
        """Put the ids of `window`, which messages call `name`, into `ids` (T + 1,)."""
        eot = self.tokenizer.eot_id
        start = derive(self.seed, "stream-window", window) % self.text.num_bytes
        start = self.text.character_start(start)
        document = self.text.document_at(start)
        end = self.text.borders(document)[1]
        done = part = 0
        while True:
            seed = derive(self.seed, "bpe-dropout", window, part)
            found = self._encode(start, end, len(ids) - done, seed, name)
            ids[done : done + len(found)] = found
            done += len(found)
            if done < len(ids) and eot is not None:
                ids[done] = eot
                done += 1
            if done == len(ids):
                return
            part += 1
            if done == 0 and part > self.text.num_documents:
                raise DataError(f"{name}: the tokenizer gives not a single id for the whole text")
            document = (document + 1) % self.text.num_documents
            start, end = self.text.borders(document)

    def _encode(self, start: int, end: int, need: int, seed: int, name: str) -> np.ndarray:
        """Return the first `need` ids of the text from `start` on; fewer only if it ends before."""
        size = self._guess(need)
        while start + size < end:
            stop = self.text.character_start(start + size)
            ids = self._ids(start, stop, seed, name)
            beyond = self.tokenizer.token_byte_lengths[ids[need:]].sum()
            if len(ids) >= need and beyond >= MARGIN:
                return ids[:need]
            size *= 2
        return self._ids(start, end, seed, name)[:need]

    def _guess(self, need: int) -> int:
        """Return how many bytes most likely hold `need` ids and the margin."""
        return int(need * self.bytes_per_token * 1.2) + MARGIN

    def _ids(self, start: int, stop: int, seed: int, name: str) -> np.ndarray:
        """Encode the bytes `start` to `stop`; errors tell whose and where they are."""
        text = self.text.read(start, stop)
        try:
            return encode_text(text, self.tokenizer, dropout=self.dropout, seed=seed)
        except Exception as e:
            document = self.text.document_at(start)
            place = (
                f"{name}: document {document + 1} of {self.text.num_documents} of the training "
                f"text, from its byte {start - self.text.borders(document)[0]} on"
            )
            if isinstance(e, MLXGPTError):
                raise DataError(f"{place}: {e}") from e
            raise RuntimeError(f"{place}: encoding failed: {type(e).__name__}: {e}") from e

    def _measure(self) -> float:
        """Return bytes per id, with the dropout, from a few places spread over the text."""
        num_bytes = num_ids = 0
        for i in range(PROBES):
            start = self.text.character_start(i * self.text.num_bytes // PROBES)
            _, end = self.text.borders(self.text.document_at(start))
            stop = start + PROBE_BYTES
            stop = self.text.character_start(stop) if stop < end else end
            num_bytes += stop - start
            num_ids += len(self._ids(start, stop, i, "a first look"))
        return num_bytes / max(1, num_ids)
