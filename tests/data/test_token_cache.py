"""Token sets: what is in them, when they are made anew, and what is refused."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from toy_tokenizers import ByteTokenizer, CodePointTokenizer, RefusingTokenizer

from mlxgpt.data import Corpus, DataConfig, TokenSet, WindowBatches, open_corpus, prepare, staging
from mlxgpt.data.encode import CHUNK_BYTES
from mlxgpt.data.token_file import TokenCounts, TokenFile
from mlxgpt.errors import ConfigError, DataError
from mlxgpt.text import END_OF_TEXT, train_bpe, train_char

CONFIG = DataConfig(corpus="x")


def corpus_of(folder: Path, *texts: str) -> Corpus:
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "rows.jsonl").write_text(rows)
    return open_corpus(folder)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return corpus_of(tmp_path / "corpus", *(f"document {i} é" for i in range(40)))


@pytest.fixture
def made(corpus: Corpus, tmp_path: Path) -> TokenSet:
    return prepare(corpus, ByteTokenizer(), CONFIG, 0, tmp_path)


def again(made: TokenSet) -> TokenSet:
    return TokenSet.open(made.folder, ByteTokenizer(), reused=True)


def test_b23_each_document_ends_with_exactly_one_end_token(tmp_path: Path) -> None:
    texts = ["one\n", "", "three", *("filler" for _ in range(18))]
    made = prepare(corpus_of(tmp_path, *texts), ByteTokenizer(), CONFIG, 0, tmp_path)
    parts = [np.array(side.tokens) for side in (made.train, made.val)]
    for side, ids in zip((made.train, made.val), parts, strict=True):
        assert np.count_nonzero(ids == 256) == side.num_documents
        assert ids[-1] == 256
    documents = bytes(np.concatenate(parts).clip(0, 255).astype(np.uint8)).split(b"\xff")[:-1]
    assert sorted(d.decode() for d in documents) == sorted(t for t in texts if t)
    assert made.train.num_documents + made.val.num_documents == 20


def test_a_tokenizer_without_an_end_token_gets_none(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", "abc", "def")
    made = prepare(corpus, ByteTokenizer(256, None), DataConfig(corpus="x", val_fraction=0.5), 0)
    assert bytes(made.train.tokens.astype(np.uint8)) == b"abc"
    assert made.train.num_tokens == made.train.num_bytes == 3


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path / "users-cache"))


def test_the_users_cache_is_the_default_place(corpus: Corpus, tmp_path: Path) -> None:
    made = prepare(corpus, ByteTokenizer(), CONFIG, 0)
    assert made.folder.parent == tmp_path / "users-cache" / "tokens"


def test_the_counts_are_those_of_the_text(made: TokenSet, corpus: Corpus) -> None:
    total = sum(len(d.text.encode()) for d in corpus.documents())
    assert made.train.num_bytes + made.val.num_bytes == total
    for side in (made.train, made.val):
        assert side.num_tokens == side.num_bytes + side.num_documents


def test_b22_the_type_follows_the_vocabulary(tmp_path: Path) -> None:
    def tokens(tokenizer: ByteTokenizer, text: str) -> np.ndarray:
        corpus = corpus_of(tmp_path / str(tokenizer.vocab_size), *[text] * 20)
        return prepare(corpus, tokenizer, CONFIG, 0).train.tokens

    wide = tokens(CodePointTokenizer(), "a" + chr(70_000))
    assert wide.dtype == np.uint32
    assert wide[:3].tolist() == [97, 70_000, 0]
    assert tokens(CodePointTokenizer(65_537, 0), "a").dtype == np.uint32
    narrow = tokens(CodePointTokenizer(65_536, 65_535), "a\ufffe")
    assert narrow.dtype == np.uint16
    assert narrow[:3].tolist() == [97, 65_534, 65_535]


@pytest.mark.parametrize("split", ["document", "tail"])
def test_the_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path, split: str) -> None:
    corpus = corpus_of(tmp_path / "c", *(f"{i} é" * 10_000 for i in range(60)))
    assert corpus.size_bytes > 4 * CHUNK_BYTES
    config = DataConfig(corpus="x", split=split)
    sets = [
        prepare(corpus, ByteTokenizer(), config, 3, tmp_path / str(n), workers=n) for n in (1, 2, 3)
    ]
    for name in ("train.bin", "val.bin", "metadata.json"):
        assert len({(s.folder / name).read_bytes() for s in sets}) == 1


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


def test_progress_counts_all_bytes_once(corpus: Corpus, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = prepare(corpus, ByteTokenizer(), CONFIG, 0, tmp_path, lambda *p: seen.append(p))
    total = made.train.num_bytes + made.val.num_bytes
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


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
    for name, age in (("old", 2 * staging.STALE_SECONDS), ("new", 0)):
        left = parent / f".{made.folder.name[:16]}-{name}"
        left.mkdir()
        (left / "train.bin").write_bytes(b"half")
        for path in (left / "train.bin", left):
            os.utime(path, (path.stat().st_mtime - age,) * 2)
    prepare(corpus, ByteTokenizer(), CONFIG, 0, parent.parent)
    assert sorted(os.listdir(parent)) == [left.name, made.folder.name]


def test_b24_the_remainder_is_less_than_one_window_of_the_whole(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", *["x" * 10] * 7, "y")
    config = DataConfig(corpus="x", val_fraction=0.01, split="tail")
    made = prepare(corpus, ByteTokenizer(), config, 0, tmp_path)
    assert made.train.num_tokens == 77
    assert WindowBatches(made.train, 1, 32, 0).windows_per_epoch == 77 // 32


def test_shakespeare_as_bytes_is_the_usual_split(shared_data: Path, tmp_path: Path) -> None:
    corpus = open_corpus(shared_data / "text" / "tinyshakespeare.txt")
    made = prepare(corpus, ByteTokenizer(256, None), CONFIG, 0, tmp_path)
    assert (made.train.num_tokens, made.val.num_tokens) == (1003854, 111540)
    whole = np.concatenate([made.train.tokens, made.val.tokens]).astype(np.uint8)
    assert bytes(whole) == corpus.sources[0].path.read_bytes()


def test_data_never_imports_mlx() -> None:
    code = "import sys, mlxgpt.data; sys.exit('mlx.core' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


LITERAL = f"before {END_OF_TEXT} after"


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_b11_a_literal_end_of_text_in_a_document_is_plain_text(tmp_path: Path, kind: str) -> None:
    texts = [f"{LITERAL} {i}" for i in range(20)]
    corpus = corpus_of(tmp_path / "c", *texts)
    tokenizer = train_char(texts) if kind == "char" else train_bpe(texts, 280)
    made = prepare(corpus, tokenizer, CONFIG, 0, workers=2)
    assert tokenizer.eot_id is not None
    for side in (made.train, made.val):
        ids = side.tokens.tolist()
        assert ids.count(tokenizer.eot_id) == side.num_documents
        first = ids[: ids.index(tokenizer.eot_id)]
        assert tokenizer.decode(first) in texts
    lengths = tokenizer.token_byte_lengths
    assert lengths[made.train.tokens].sum() == made.train.num_bytes


def test_b10_a_lone_surrogate_is_encoded_as_the_tokenizer_would(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud83db"}\n' * 20)
    tokenizer = train_char(["ab\ufffd"])
    made = prepare(open_corpus(tmp_path / "a.jsonl"), tokenizer, CONFIG, 0)
    assert made.train.tokens[:4].tolist() == [*tokenizer.encode("a\ud83db"), tokenizer.eot_id]
