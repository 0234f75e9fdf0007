"""When a token set is made anew, and what is refused."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from toy_corpora import corpus_of
from toy_tokenizers import ByteTokenizer, RefusingTokenizer

from mlxgpt.data import Corpus, DataConfig, TokenSet, open_corpus, prepare
from mlxgpt.data.prepare import STALE_SECONDS
from mlxgpt.data.token_file import TokenCounts, TokenFile
from mlxgpt.errors import ConfigError, DataError

CONFIG = DataConfig(corpus="x")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path / "users-cache"))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return corpus_of(tmp_path / "corpus", *(f"document {i} é" for i in range(40)))


@pytest.fixture
def made(corpus: Corpus, tmp_path: Path) -> TokenSet:
    return prepare(corpus, ByteTokenizer(), CONFIG, 0, tmp_path)


def again(made: TokenSet) -> TokenSet:
    return TokenSet.open(made.folder, ByteTokenizer(), reused=True)


def test_the_users_cache_is_the_default_place(corpus: Corpus, tmp_path: Path) -> None:
    made = prepare(corpus, ByteTokenizer(), CONFIG, 0)
    assert made.folder.parent == tmp_path / "users-cache" / "tokens"


def test_a_second_run_reuses_what_the_first_made(corpus: Corpus, made: TokenSet) -> None:
    assert not made.reused
    second = prepare(
        open_corpus(corpus.name), RefuseToEncode(), CONFIG, 0, made.folder.parents[1], workers=1
    )
    assert second.reused
    assert second.folder == made.folder
    assert np.array_equal(second.train.tokens, made.train.tokens)
    assert second.train.fingerprint == made.train.fingerprint != made.val.fingerprint


class RefuseToEncode(ByteTokenizer):
    """A byte tokenizer (by its hash) that must not be used."""

    content_hash = ByteTokenizer().content_hash

    def encode(self, text: str) -> list[int]:
        raise AssertionError("encoded again")


def test_whatever_changes_the_ids_changes_the_key(corpus: Corpus, tmp_path: Path) -> None:
    def folder(
        corpus: Corpus = corpus,
        tokenizer: ByteTokenizer = ByteTokenizer(),
        seed: int = 0,
        **settings: object,
    ) -> Path:
        config = DataConfig(corpus="x", **settings)
        return prepare(corpus, tokenizer, config, seed, tmp_path / "cache").folder

    different = [
        folder(),
        folder(seed=1),
        folder(val_fraction=0.2),
        folder(split="tail"),
        folder(tokenizer=ByteTokenizer(258)),
        folder(corpus=corpus_of(tmp_path / "more", *(f"document {i} e" for i in range(40)))),
    ]
    assert len(set(different)) == len(different)
    assert folder(split="document") == folder()  # what `auto` amounts to here
    assert folder(split="tail", seed=1) == folder(split="tail")  # nothing is drawn


def test_b78_an_id_beyond_the_vocabulary_is_named_with_file_and_place(made: TokenSet) -> None:
    path = made.folder / "train.bin"
    ids = np.fromfile(path, np.uint16)
    ids[[7, 20]] = 300
    ids.tofile(path)
    with pytest.raises(DataError, match="id 300 at token 7 \\(byte 14\\)") as caught:
        again(made)
    assert str(path) in str(caught.value)
    assert f"delete the folder {made.folder}" in str(caught.value)


def test_b78_the_whole_file_is_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxgpt.data.token_file.SCAN_IDS", 10)
    ids = np.zeros(95, np.uint16)
    ids[94] = 256
    path = tmp_path / "train.bin"
    ids.tofile(path)
    counts = TokenCounts(num_tokens=95, num_documents=1, num_bytes=94, max_id=0, crc32=0)
    with pytest.raises(DataError, match=r"id 256 at token 94 \(byte 188\) .* size 256"):
        TokenFile.open(path, counts, 256, "x")


def test_a_damaged_cache_is_refused_not_reused(made: TokenSet, corpus: Corpus) -> None:
    path = made.folder / "val.bin"
    whole = path.read_bytes()

    def refused(*parts: str) -> None:
        with pytest.raises(DataError) as caught:
            prepare(corpus, ByteTokenizer(), CONFIG, 0, made.folder.parents[1])
        for part in (*parts, "delete", str(made.folder)):
            assert part in str(caught.value)

    path.write_bytes(whole[:-2])
    refused("val.bin", f"{len(whole) - 2} bytes instead of {len(whole)}")
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    refused("val.bin", "checksum")
    path.unlink()
    refused("val.bin", "No such file")
    path.write_bytes(whole)
    assert prepare(corpus, ByteTokenizer(), CONFIG, 0, made.folder.parents[1]).reused
    metadata = made.folder / "metadata.json"
    for content in ("{", "[]", "{}", metadata.read_text().replace('"version": 1', '"version": 2')):
        metadata.write_text(content)
        refused("metadata.json" if len(content) < 9 else "version 2")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("vocab_size", 70_001, "another tokenizer"),
        ("tokenizer", "0" * 64, "another tokenizer"),
        ("dtype", "uint32", "uint32 is not the type"),
        ("train", {"num_tokens": 3}, "incomplete"),
    ],
)
def test_b22_another_vocabulary_or_type_is_refused(
    made: TokenSet, field: str, value: object, message: str
) -> None:
    path = made.folder / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(DataError, match=message):
        again(made)


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", *["fine"] * 30, "bad")
    for workers in (1, 2):
        with pytest.raises(DataError, match=r"rows\.jsonl:31: this word"):
            prepare(corpus, RefusingTokenizer(), CONFIG, 0, tmp_path, workers=workers)
    assert list((tmp_path / "tokens").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_said_so(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a file where the folder should be")
    with pytest.raises(DataError, match="cannot write the token cache"):
        prepare(corpus, ByteTokenizer(), CONFIG, 0, tmp_path)


def test_zero_workers_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'workers' must be at least 1, got 0"):
        prepare(corpus, ByteTokenizer(), CONFIG, 0, tmp_path, workers=0)


def test_two_writers_of_one_key_do_not_disturb_each_other(corpus: Corpus, tmp_path: Path) -> None:
    both_at_work = threading.Barrier(2)
    results: list[TokenSet] = []

    def run() -> None:
        met: list[int] = []

        def progress(done: int, total: int) -> None:
            if not met:
                met.append(both_at_work.wait(10))

        results.append(prepare(corpus, ByteTokenizer(), CONFIG, 0, tmp_path, progress, 1))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert np.array_equal(results[0].train.tokens, results[1].train.tokens)
    assert os.listdir(tmp_path / "tokens") == [results[0].folder.name]


def test_what_a_killed_writer_left_is_swept_away_later(made: TokenSet, corpus: Corpus) -> None:
    parent = made.folder.parent
    shutil.rmtree(made.folder)
    for name, age in (("old", 2 * STALE_SECONDS), ("new", 0)):
        left = parent / f"tmp-{name}-{made.folder.name}"
        left.mkdir()
        (left / "train.bin").write_bytes(b"half")
        for path in (left / "train.bin", left):
            os.utime(path, (path.stat().st_mtime - age,) * 2)
    prepare(corpus, ByteTokenizer(), CONFIG, 0, parent.parent)
    assert sorted(os.listdir(parent)) == [made.folder.name, left.name]


def test_data_never_imports_mlx() -> None:
    code = "import sys, mlxgpt.data; sys.exit('mlx.core' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
