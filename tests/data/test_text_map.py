"""The training text as one mapped file: all of it, with its borders, made once, checked always."""

import gzip
import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_corpora import corpus_of, write, write_rows
from toy_tokenizers import ByteTokenizer, PairTokenizer, RefusingTokenizer

from mlxgpt.data import (
    Corpus,
    DataConfig,
    Split,
    StreamSet,
    TextMap,
    open_corpus,
    prepare,
    prepare_stream,
)
from mlxgpt.data.text_map import write_text_map
from mlxgpt.errors import ConfigError, DataError

CONFIG = DataConfig(corpus="x")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path / "users-cache"))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return corpus_of(tmp_path / "corpus", *(f"document {i} é😀" for i in range(40)))


@pytest.fixture
def made(corpus: Corpus, tmp_path: Path) -> StreamSet:
    return prepare_stream(corpus, PairTokenizer(), CONFIG, 0, tmp_path)


def documents(text: TextMap) -> list[str]:
    return [text.read(*text.borders(i)) for i in range(text.num_documents)]


@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet", "gz"])
@pytest.mark.parametrize("split", ["document", "tail"])
def test_b21_the_map_holds_the_training_documents_byte_for_byte(
    tmp_path: Path, kind: str, split: str
) -> None:
    texts = [f"中😀é {i}\r\n" * (i + 1) for i in range(30)] + ["\ufeff mark inside"]
    place = tmp_path / "c"
    if kind == "txt":
        for i, text in enumerate(texts):
            write(place / f"{i:03}.txt", text)
    elif kind == "jsonl":
        write_rows(place / "rows.jsonl", *({"text": t} for t in [*texts, ""]))
    elif kind == "gz":
        rows = "".join(json.dumps({"text": t}) + "\n" for t in texts)
        write(place / "rows.jsonl.gz", gzip.compress(rows.encode()))
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        place.mkdir()
        table = pytest.importorskip("pyarrow").table({"text": texts})
        parquet.write_table(table, place / "rows.parquet")
    corpus, config = open_corpus(place), DataConfig(corpus="x", split=split)
    made = prepare_stream(corpus, ByteTokenizer(), config, 3)
    expected = [d.text for d in Split(corpus, config, 3).train_documents()]
    assert documents(made.train) == expected
    assert bytes(made.train.text) == "".join(expected).encode()
    bytes_in_all = sum(len(t.encode()) for t in texts) - (3 if kind == "txt" else 0)
    assert made.train.num_bytes + made.val.num_bytes == bytes_in_all


@given(st.lists(st.text("a é中😀", min_size=1, max_size=9), min_size=1, max_size=9), st.data())
def test_any_byte_leads_to_its_character_and_its_document(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("map")
    write_text_map(folder, map(iter, texts), "k", {})
    text = TextMap.open(folder)
    assert documents(text) == texts
    byte = data.draw(st.integers(0, text.num_bytes - 1))
    start, number = text.character_start(byte), text.document_at(byte)
    begin, end = text.borders(number)
    assert begin <= start <= byte < end
    assert byte - start < 4
    assert text.read(begin, start) + text.read(start, end) == texts[number]


def test_validation_is_what_an_encoded_run_has_and_no_training_text_is_encoded(
    made: StreamSet, corpus: Corpus, tmp_path: Path
) -> None:
    encoded = prepare(corpus, PairTokenizer(), CONFIG, 0, tmp_path / "other")
    assert np.array_equal(made.val.tokens, encoded.val.tokens)
    assert made.val.fingerprint == encoded.val.fingerprint
    assert [p.name for p in tmp_path.rglob("*.bin") if "other" not in p.parts] == [
        "ends.bin",
        "val.bin",
    ]
    assert sorted(encoded.folder.iterdir())[1].name == "train.bin"
    late = prepare_stream(corpus, PairTokenizer(), CONFIG, 0, tmp_path / "other")
    assert not late.reused  # the text is new
    assert len(list((tmp_path / "other" / "tokens").iterdir())) == 1  # the ids are not
    assert late.val.fingerprint == made.val.fingerprint


def test_a_second_run_reuses_what_the_first_made(
    made: StreamSet, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not made.reused
    monkeypatch.setattr(Split, "train_pieces", None)
    monkeypatch.setattr(Split, "val_documents", None)
    second = prepare_stream(open_corpus(corpus.name), PairTokenizer(), CONFIG, 0, tmp_path)
    assert second.reused
    assert second.train.fingerprint == made.train.fingerprint
    assert np.array_equal(second.train.text, made.train.text)


def test_what_changes_the_text_changes_the_key_and_the_tokenizer_does_not(
    corpus: Corpus, tmp_path: Path
) -> None:
    def prints(
        corpus: Corpus = corpus,
        tokenizer: ByteTokenizer = ByteTokenizer(),
        seed: int = 0,
        **settings: object,
    ) -> tuple[str, str]:
        made = prepare_stream(corpus, tokenizer, DataConfig(corpus="x", **settings), seed, tmp_path)
        return made.train.fingerprint, made.val.fingerprint

    same = prints()
    different = [
        same,
        prints(seed=1),
        prints(val_fraction=0.2),
        prints(split="tail"),
        prints(corpus=corpus_of(tmp_path / "more", *(f"document {i} e" for i in range(40)))),
    ]
    assert len({text for text, _ in different}) == len({ids for _, ids in different}) == 5
    other = prints(tokenizer=PairTokenizer())
    assert other[0] == same[0]
    assert other[1] != same[1]
    assert prints(bpe_dropout=0.5) == prints(stream=True) == same


def test_a_damaged_map_is_refused_not_reused(
    made: StreamSet, corpus: Corpus, tmp_path: Path
) -> None:
    (folder,) = (tmp_path / "texts").iterdir()

    def refused(*parts: str) -> None:
        with pytest.raises(DataError) as caught:
            prepare_stream(corpus, PairTokenizer(), CONFIG, 0, tmp_path)
        for part in (*parts, "the text cache", "delete it", str(folder)):
            assert part in str(caught.value), caught.value

    for name in ("text.txt", "ends.bin"):
        path, whole = folder / name, (folder / name).read_bytes()
        path.write_bytes(whole[:-1])
        refused(name, f"{len(whole) - 1} bytes instead of {len(whole)}")
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        refused(name, "checksum")
        path.unlink()
        refused(name, "No such file")
        path.write_bytes(whole)
    assert prepare_stream(corpus, PairTokenizer(), CONFIG, 0, tmp_path).reused
    path = folder / "metadata.json"
    whole = json.loads(path.read_text())
    for content, words in (
        ("{", "cannot be read"),
        ("{}", "another kind"),
        (json.dumps(whole | {"version": 2}), "version 2"),
        (json.dumps({k: v for k, v in whole.items() if k != "ends_crc32"}), "incomplete"),
    ):
        path.write_text(content)
        refused(words)


def test_documents_that_do_not_end_where_the_text_does_are_refused(tmp_path: Path) -> None:
    for name, texts in (("a", ["ab", "c"]), ("b", ["abc", "d"])):
        (tmp_path / name).mkdir()
        write_text_map(tmp_path / name, map(iter, texts), "k", {})
    shutil.copy(tmp_path / "b" / "ends.bin", tmp_path / "a")
    metadata = [json.loads((tmp_path / n / "metadata.json").read_text()) for n in "ab"]
    metadata[0]["ends_crc32"] = metadata[1]["ends_crc32"]
    (tmp_path / "a" / "metadata.json").write_text(json.dumps(metadata[0]))
    with pytest.raises(DataError, match="do not end where its text ends"):
        TextMap.open(tmp_path / "a")


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", *["fine"] * 30, "bad")
    config = DataConfig(corpus="x", split="tail")
    with pytest.raises(DataError, match=r"rows\.jsonl:31: this word"):
        prepare_stream(corpus, RefusingTokenizer(), config, 0, tmp_path)
    assert list((tmp_path / "tokens").iterdir()) == []
    rows = tmp_path / "c" / "rows.jsonl"
    rows.write_text(rows.read_text() + "{}\n")
    with pytest.raises(DataError, match="no field"):
        prepare_stream(open_corpus(tmp_path / "c"), ByteTokenizer(), config, 0, tmp_path / "new")
    assert [p for p in (tmp_path / "new").rglob("*") if p.is_file()] == []


def test_b25_a_corpus_without_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no text"):
        prepare_stream(corpus_of(tmp_path / "c", "", ""), ByteTokenizer(), CONFIG, 0, tmp_path)


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = Split(corpus, CONFIG, 0).train_bytes
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, needed - 1))
    with pytest.raises(DataError, match=r"streaming needs 0\.0 MB .*texts, .*MLXGPT_CACHE"):
        prepare_stream(corpus, ByteTokenizer(), CONFIG, 0, tmp_path)
    assert list((tmp_path / "texts").iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, needed))
    made = prepare_stream(corpus, ByteTokenizer(), CONFIG, 0, tmp_path)
    assert made.train.num_bytes == needed


@pytest.mark.parametrize("split", ["document", "tail"])
def test_progress_counts_all_bytes_once(corpus: Corpus, tmp_path: Path, split: str) -> None:
    seen: list[tuple[int, int]] = []
    config = DataConfig(corpus="x", split=split, val_fraction=0.3)
    if split == "tail":  # inside a character
        corpus = corpus_of(tmp_path / "tail", "😀" * 41)
    made = prepare_stream(
        corpus, ByteTokenizer(), config, 0, tmp_path, lambda *p: seen.append(p), workers=1
    )
    total = made.train.num_bytes + made.val.num_bytes
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    assert (made.train.num_bytes, total) in seen
    assert max(seen)[0] == total
    with pytest.raises(ConfigError, match="'workers'"):
        prepare_stream(corpus, ByteTokenizer(), CONFIG, 0, tmp_path, workers=0)


def test_two_writers_of_one_key_do_not_disturb_each_other(corpus: Corpus, tmp_path: Path) -> None:
    both_at_work = threading.Barrier(2)
    results: list[StreamSet] = []

    def run() -> None:
        met: list[int] = []

        def progress(done: int, total: int) -> None:
            if not met:
                met.append(both_at_work.wait(10))

        results.append(prepare_stream(corpus, ByteTokenizer(), CONFIG, 0, tmp_path, progress, 1))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert np.array_equal(results[0].train.text, results[1].train.text)
    assert len(os.listdir(tmp_path / "texts")) == 1
