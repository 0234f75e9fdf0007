"""Documents -> arrays of ids, in order, in this process or in several, with the same result.

A document is never cut: where a tokenizer cannot merge across is not known here. A chunk is only
what travels to a process at once, and no id depends on which documents share one.
"""

import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from typing import Any, Literal, Self

import numpy as np

from mlxgpt.data.document import Document
from mlxgpt.data.token_file import token_dtype
from mlxgpt.errors import DataError, MLXGPTError
from mlxgpt.text import Tokenizer

CHUNK_BYTES = 1 << 19

Side = Literal["train", "val"]


@dataclass(frozen=True)
class Chunk:
    """Documents of one side that are encoded in one go."""

    side: Side
    documents: list[Document]


@dataclass(frozen=True)
class Encoded:
    """What became of a chunk."""

    side: Side
    ids: np.ndarray
    """(n,) of `token_dtype(vocab_size)`: each document's ids, then the end-of-text, if any."""
    num_documents: int
    num_bytes: int


def chunked(side: Side, documents: Iterable[Document], size: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Group documents until a group has `size` characters."""
    group: list[Document] = []
    length = 0
    for document in documents:
        group.append(document)
        length += len(document.text)
        if length >= size:
            yield Chunk(side, group)
            group, length = [], 0
    if group:
        yield Chunk(side, group)


def encode_chunk(chunk: Chunk, tokenizer: Tokenizer) -> Encoded:
    """Encode each document by itself.

    Raises `DataError` naming the document if the tokenizer refuses it or gives an id that is not in
    its vocabulary; any other error of the tokenizer becomes a `RuntimeError` naming the document.
    """
    dtype = token_dtype(tokenizer.vocab_size)
    end = [] if tokenizer.eot_id is None else [np.array([tokenizer.eot_id], dtype)]
    pieces: list[np.ndarray] = []
    num_bytes = 0
    for document in chunk.documents:
        try:
            ids = np.array(tokenizer.encode(document.text), dtype=np.int64)
        except MLXGPTError as e:
            raise DataError(f"{document.origin}: {e}") from e
        except Exception as e:
            raise RuntimeError(f"encoding {document.origin} failed: {type(e).__name__}: {e}") from e
        # The cast below would wrap: 70000 becomes 4464 in 16 bits, without a word.
        bad = ids[(ids < 0) | (ids >= tokenizer.vocab_size)]
        if len(bad):
            raise DataError(
                f"{document.origin}: the tokenizer gave the id {bad[0]}, but its vocabulary has "
                f"the ids 0 to {tokenizer.vocab_size - 1}"
            )
        if tokenizer.eot_id is not None and (ids == tokenizer.eot_id).any():
            raise DataError(
                f"{document.origin}: the tokenizer turned plain text into its end-of-text token"
            )
        pieces.append(ids.astype(dtype))
        pieces.extend(end)
        num_bytes += len(document.text.encode())
    return Encoded(chunk.side, np.concatenate(pieces), len(chunk.documents), num_bytes)


class Encoders:
    """`workers` processes that encode chunks; with 1, this process does it and none is started.

    Use as a context manager: when the block ends, in whatever way, the processes are gone. At most
    one chunk is with each process, which bounds the memory and cannot deadlock.
    """

    def __init__(self, tokenizer: Tokenizer, workers: int) -> None:
        self._tokenizer = tokenizer
        self._count = workers if workers > 1 else 0
        self._processes: list[SpawnProcess] = []
        self._connections: list[Any] = []

    def __enter__(self) -> Self:
        # Ctrl-C reaches the whole process group. Blocked, and so inherited as blocked, it is left
        # to this process alone, which then ends the others. The resource tracker unblocks it when
        # it starts, so it has to run before.
        if self._count:
            resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(self._count):
                self._start()
        except BaseException:
            self.__exit__()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process, connection in zip(self._processes, self._connections, strict=True):
            process.join()
            process.close()
            connection.close()
        self._processes.clear()
        self._connections.clear()

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[Encoded]:
        """Yield the results in the order of `chunks`. Raises what `encode_chunk` raises."""
        if self._count == 0:
            for chunk in chunks:
                yield encode_chunk(chunk, self._tokenizer)
            return
        busy: deque[int] = deque()
        for chunk in chunks:
            done = None
            if len(busy) < self._count:
                worker = len(busy)
            else:
                worker = busy.popleft()
                done = self._receive(worker)
            self._send(worker, chunk)
            busy.append(worker)
            if done is not None:
                yield done
        while busy:
            yield self._receive(busy.popleft())

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # fork does not go with MLX's threads
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, self._tokenizer), daemon=True)
        try:
            process.start()
        except BaseException:
            here.close()
            raise
        finally:
            there.close()  # so that a dead process is seen as the end of the pipe
        self._processes.append(process)
        self._connections.append(here)

    def _send(self, worker: int, chunk: Chunk) -> None:
        try:
            self._connections[worker].send(chunk)
        except OSError as e:
            raise self._death(worker) from e

    def _receive(self, worker: int) -> Encoded:
        try:
            answer = self._connections[worker].recv()
        except (EOFError, OSError) as e:
            raise self._death(worker) from e
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _death(self, worker: int) -> DataError:
        self._processes[worker].join(5)
        code = self._processes[worker].exitcode
        if code is not None and code < 0:
            why = f"was killed by signal {-code}, perhaps for want of memory; use fewer workers"
        else:
            why = (
                f"ended early with exit code {code}; a script that encodes in several processes "
                "must do so under `if __name__ == '__main__':`"
            )
        return DataError(f"a process that encodes documents {why}")


def _work(connection: Any, tokenizer: Tokenizer) -> None:
    """Answer chunks until the other end is closed. The body of each process."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            chunk = connection.recv()
            try:
                answer = encode_chunk(chunk, tokenizer)
            except MLXGPTError as e:
                answer = e
            except Exception as e:
                # The traceback would stay behind: only the message travels.
                answer = RuntimeError(f"{e}\n\nin the encoding process:\n{traceback.format_exc()}")
            connection.send(answer)
