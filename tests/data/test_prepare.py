"""What is in a token set: the whole text, encoded, once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from toy_corpora import corpus_of
from toy_tokenizers import ByteTokenizer, CodePointTokenizer

from mlxgpt.data import Corpus, DataConfig, TokenSet, WindowBatches, open_corpus, prepare
from mlxgpt.data.encode import CHUNK_BYTES
from mlxgpt.text import END_OF_TEXT, train_bpe, train_char

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


@dataclass(frozen=True)
class CompiledTokenizer(ByteTokenizer):
    """Says that it works without the interpreter's lock if there is enough to do."""

    enough: int = 0

    @property
    def content_hash(self) -> str:
        return ByteTokenizer().content_hash

    def use_compiled(self, num_bytes: int, notice: Callable[[str], None]) -> bool:
        notice(f"compiling for {num_bytes} bytes")
        return num_bytes >= self.enough


def test_a_compiled_tokenizer_encodes_in_threads_and_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of(tmp_path / "c", *(f"{i} é" * 10_000 for i in range(60)))
    total = sum(len(d.text.encode()) for d in corpus.documents())
    plain = prepare(corpus, ByteTokenizer(), CONFIG, 0, tmp_path / "plain", workers=2)

    def start() -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("mlxgpt.data.encoders._start", start)
    said: list[str] = []
    for workers in (1, 2, 5):
        made = prepare(
            corpus,
            CompiledTokenizer(enough=total),
            CONFIG,
            0,
            tmp_path / f"{workers}",
            workers=workers,
            notice=said.append,
        )
        for name in ("train.bin", "val.bin", "metadata.json"):
            assert (made.folder / name).read_bytes() == (plain.folder / name).read_bytes()
    assert said == [f"compiling for {total} bytes"] * 3
    with pytest.raises(AssertionError, match="a process"):
        prepare(corpus, CompiledTokenizer(enough=total + 1), CONFIG, 0, tmp_path / "few", workers=2)


def test_progress_counts_all_bytes_once(corpus: Corpus, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = prepare(corpus, ByteTokenizer(), CONFIG, 0, tmp_path, lambda *p: seen.append(p))
    total = made.train.num_bytes + made.val.num_bytes
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


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
