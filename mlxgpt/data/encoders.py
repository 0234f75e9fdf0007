"""Chunks -> ids, in order, in this process, its threads or several processes: the same ids.

Threads are for a tokenizer that works without the interpreter's lock, processes for all others.
These are fresh interpreters with a pipe each. `multiprocessing` would import the user's script once
more in each of them, which asks for a guard in it and fails for one read from stdin; a fork does
not go together with MLX's threads.
"""

import os
import pickle
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Self

from mlxgpt.data.encode import Chunk, Encoded, encode_chunk
from mlxgpt.data.prefetch import Prefetcher
from mlxgpt.errors import DataError, MLXGPTError
from mlxgpt.text import Tokenizer

WORKER = "import sys; sys.path[:] = {path!r}; from mlxgpt.data.encoders import serve; serve()"


class Encoders:
    """`workers` processes that encode chunks; with 1, this process does it and none is started.

    With `threads` it is so many threads of this process, which share the tokenizer and its tables.

    Use as a context manager: when the block ends, in whatever way, processes and threads are gone.
    At most one chunk is with each of them, which bounds the memory and cannot deadlock.
    """

    def __init__(self, tokenizer: Tokenizer, workers: int, *, threads: bool = False) -> None:
        self._tokenizer = tokenizer
        self._threads = workers if threads and workers > 1 else 0
        self._count = workers if workers > 1 and not threads else 0
        self._ahead: Prefetcher[Chunk, Encoded] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._processes.append(_start())
            for worker in range(self._count):  # only now, so that they start side by side
                self._send(worker, self._tokenizer)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._ahead is not None:
            self._ahead.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # unsent bytes for a process that is gone
                        pipe.close()
        self._processes.clear()

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[Encoded]:
        """Yield the results in the order of `chunks`. Raises what `encode_chunk` raises."""
        if self._threads:
            self._ahead = Prefetcher(
                lambda chunk: encode_chunk(chunk, self._tokenizer),
                chunks,
                workers=self._threads,
                ahead=self._threads,
            )
            yield from self._ahead
            return
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

    def _send(self, worker: int, message: Any) -> None:
        pipe = self._processes[worker].stdin
        assert pipe is not None
        try:
            pickle.dump(message, pipe)
            pipe.flush()
        except OSError as e:
            raise self._death(worker) from e

    def _receive(self, worker: int) -> Encoded:
        pipe = self._processes[worker].stdout
        assert pipe is not None
        try:
            answer = pickle.load(pipe)
        except (EOFError, OSError, pickle.UnpicklingError) as e:
            raise self._death(worker) from e
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _death(self, worker: int) -> DataError:
        code = self._processes[worker].wait(5)
        if code < 0:
            why = f"was killed by signal {-code}, perhaps for want of memory; use fewer workers"
        else:
            why = f"ended early with exit code {code}; its own message stands above"
        return DataError(f"a process that encodes documents {why}")


def serve() -> None:
    """Answer chunks until there are no more: the body of each process.

    The tokenizer and then the chunks come through stdin, the answers go out through stdout.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a tokenizer prints must not come between the answers
    tokenizer = pickle.load(sys.stdin.buffer)
    with suppress(EOFError, BrokenPipeError):
        while True:
            chunk = pickle.load(sys.stdin.buffer)
            try:
                answer = encode_chunk(chunk, tokenizer)
            except MLXGPTError as e:
                answer = e
            except Exception as e:
                # The traceback would stay behind: only the message travels.
                answer = RuntimeError(f"{e}\n\nin the encoding process:\n{traceback.format_exc()}")
            pickle.dump(answer, answers)
            answers.flush()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER.format(path=sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C reaches the whole process group of the terminal. It is for this process alone,
        # which then ends the others; if it is killed, the pipes close and they end by themselves.
        start_new_session=True,
    )
