"""Encoding in processes and threads: the same ids, the right errors, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from toy_tokenizers import ByteTokenizer, CodePointTokenizer, RefusingTokenizer, TalkingTokenizer

from mlxgpt.data import Document
from mlxgpt.data.encode import Chunk, chunked
from mlxgpt.data.encoders import Encoders
from mlxgpt.errors import DataError


def documents(*texts: str) -> Iterator[Document]:
    return (Document(text, f"book {i}") for i, text in enumerate(texts))


def encode(
    tokenizer: ByteTokenizer, workers: int, *texts: str, size: int = 1, threads: bool = False
) -> np.ndarray:
    with Encoders(tokenizer, workers, threads=threads) as encoders:
        chunks = chunked("train", documents(*texts), size)
        return np.concatenate([e.ids for e in encoders.encode(chunks)])


def test_the_ids_depend_neither_on_processes_nor_on_chunks() -> None:
    texts = [f"text {i} " * (i * 7 % 13) + "é" for i in range(60)]
    expected = encode(ByteTokenizer(), 1, *texts)
    assert expected.tolist() == [i for t in texts for i in (*t.encode(), 256)]
    for workers, size in ((1, 10), (2, 1), (3, 100)):
        for threads in (False, True):
            ids = encode(ByteTokenizer(), workers, *texts, size=size, threads=threads)
            assert np.array_equal(ids, expected)


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_errors_name_the_document(workers: int, threads: bool) -> None:
    before = threading.active_count()
    with pytest.raises(DataError, match=r"^book 1: this word is not allowed$"):
        encode(RefusingTokenizer(), workers, "fine", "bad", "fine", threads=threads)
    with pytest.raises(RuntimeError, match="encoding book 2 failed: KeyError"):
        encode(RefusingTokenizer(), workers, "fine", "fine", "broken", threads=threads)
    assert threading.active_count() == before


def test_threads_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2)

    class Waiting(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            meeting.wait(10)  # fails unless another thread comes
            return super().encode(text)

    ids = encode(Waiting(), 2, "a", "b", "c", "d", threads=True)
    assert ids.tolist() == [97, 256, 98, 256, 99, 256, 100, 256]


def test_a_process_that_is_killed_does_not_hang_the_rest() -> None:
    with pytest.raises(DataError, match=r"killed by signal 9.*fewer workers"):
        encode(RefusingTokenizer(), 2, *["fine"] * 5, "deadly", *["fine"] * 5)


@pytest.mark.parametrize("workers", [1, 2])
def test_b22_an_id_beyond_the_vocabulary_is_refused_not_wrapped(workers: int) -> None:
    with pytest.raises(DataError, match=r"book 1: .* the id 70001, .* ids 0 to 70000"):
        encode(CodePointTokenizer(), workers, "a", chr(70001))


def test_plain_text_that_becomes_the_end_token_is_refused() -> None:
    with pytest.raises(DataError, match=r"book 0: .* end-of-text"):
        encode(CodePointTokenizer(), 1, "a\0b")


def test_what_a_tokenizer_prints_does_no_harm(capfd: pytest.CaptureFixture[str]) -> None:
    expected = encode(ByteTokenizer(), 1, "a", "b")
    assert np.array_equal(encode(TalkingTokenizer(), 2, "a", "b"), expected)
    out, err = capfd.readouterr()
    assert out == ""
    assert sorted(err) == sorted("hello\n" * 2)  # two processes may write at once


def test_a_program_without_a_main_guard_or_a_file_can_encode_in_processes() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_encoding import ByteTokenizer, encode
print(encode(ByteTokenizer(), 2, "a", "b").tolist())
"""
    output = subprocess.run(
        [sys.executable, "-"], input=code, text=True, capture_output=True, check=True
    )
    assert output.stdout == "[97, 256, 98, 256]\n"
    assert output.stderr == ""


@pytest.mark.parametrize("threads", [False, True])
def test_reading_stays_just_ahead_of_encoding(threads: bool) -> None:
    read = 0

    def chunks() -> Iterator[Chunk]:
        nonlocal read
        for chunk in chunked("train", documents(*["x"] * 50), 1):
            read += 1
            yield chunk

    with Encoders(ByteTokenizer(), 2, threads=threads) as encoders:
        for done, _ in enumerate(encoders.encode(chunks()), start=1):
            assert read <= done + 3


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from toy_tokenizers import SlowTokenizer
from mlxgpt.data import DataConfig, open_corpus, prepare

prepare(
    open_corpus({corpus!r}), SlowTokenizer(folder={pids!r}), DataConfig(corpus="x"), 0,
    cache_dir=Path({cache!r}), workers=int(sys.argv[1]),
)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_leaves_no_process_and_no_file(tmp_path: Path, workers: int) -> None:
    for folder in ("corpus", "pids", "cache"):
        (tmp_path / folder).mkdir()
    for i in range(200):
        (tmp_path / "corpus" / f"{i}.txt").write_text("x" * 600_000)
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT.format(
            tests=str(Path(__file__).parent),
            **{name: str(tmp_path / name) for name in ("corpus", "pids", "cache")},
        )
    )
    process = subprocess.Popen(
        [sys.executable, str(script), str(workers)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while len(os.listdir(tmp_path / "pids")) < workers:
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    assert os.listdir(tmp_path / "cache" / "tokens")
    os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C does
    _, errors = process.communicate(timeout=20)
    assert process.returncode != 0
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert os.listdir(tmp_path / "cache" / "tokens") == []
    for pid in os.listdir(tmp_path / "pids"):
        group = int((tmp_path / "pids" / pid).read_text())
        assert (group == process.pid) == (workers == 1)  # Ctrl-C is for the parent alone
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
