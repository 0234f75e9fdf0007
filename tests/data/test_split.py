"""Which text is trained on and which is held back."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.config import build
from mlxgpt.data import Corpus, DataConfig, Document, Split, open_corpus
from mlxgpt.errors import ConfigError, DataError


@dataclass(frozen=True)
class ListCorpus(Corpus):
    """A corpus of given texts, without files."""

    texts: tuple[str, ...] = ()

    def documents(self) -> Iterator[Document]:
        return (Document(t, str(i)) for i, t in enumerate(self.texts) if t)

    def pieces(self) -> Iterator[Iterator[str]]:
        return ((t[i : i + 2] for i in range(0, len(t) + 1, 2)) for t in self.texts)


def listed(*texts: str) -> Corpus:
    return ListCorpus("list", (), texts=texts)


def sides(corpus: Corpus, seed: int = 0, **settings: object) -> tuple[list[str], list[str]]:
    split = Split(corpus, DataConfig(corpus="x", **settings), seed)
    return [d.text for d in split.train_documents()], [d.text for d in split.val_documents()]


def size(texts: list[str]) -> int:
    return sum(len(t.encode()) for t in texts)


TEXTS = st.lists(st.text(st.sampled_from("ab é中😀"), max_size=30), min_size=1, max_size=60)
FRACTION = st.sampled_from([0.01, 0.1, 0.3, 0.5, 0.9])


@given(TEXTS, FRACTION, st.integers(0, 5), st.sampled_from(["auto", "document", "tail"]))
def test_the_sides_are_disjoint_and_together_all_of_it(
    texts: list[str], fraction: float, seed: int, kind: str
) -> None:
    corpus = listed(*texts)
    try:
        train, val = sides(corpus, seed, split=kind, val_fraction=fraction)
    except DataError:
        assert len("".join(texts)) < 2 or len([t for t in texts if t]) < 2 or kind != "document"
        assert kind == "document" or size(texts) < 4 / min(fraction, 1 - fraction)
        return
    assert train
    assert val
    assert "" not in train + val
    assert sorted("".join(train + val)) == sorted("".join(texts))
    split = Split(corpus, DataConfig(corpus="x", split=kind, val_fraction=fraction), seed)
    assert ["".join(pieces) for pieces in split.train_pieces()] == train
    assert 0 <= split.train_bytes - size(train) < 4
    assert (train, val) == sides(corpus, seed, split=kind, val_fraction=fraction)


@given(TEXTS, FRACTION)
def test_tail_is_the_last_fraction_up_to_a_character(texts: list[str], fraction: float) -> None:
    whole = "".join(texts)
    try:
        train, val = sides(listed(*texts), split="tail", val_fraction=fraction)
    except DataError:
        return
    assert "".join(train) + "".join(val) == whole
    assert 0 <= size(val) - ceil(size(texts) * Fraction(str(fraction))) <= 3
    assert len(train) + len(val) - len([t for t in texts if t]) in (0, 1)


@given(st.lists(st.integers(1, 9), min_size=20, max_size=80), FRACTION, st.integers(0, 3))
def test_document_is_the_smallest_draw_that_reaches_the_fraction(
    lengths: list[int], fraction: float, seed: int
) -> None:
    texts = ["x" * n for n in lengths]
    train, val = sides(listed(*texts), seed, val_fraction=fraction)
    assert len(train) + len(val) == len(texts)
    target = ceil(sum(lengths) * Fraction(str(fraction)))
    assert size(val) <= max(2 * target, min(lengths))
    if max(lengths) <= target:
        assert size(val) >= target or len(train) == 1
        assert size(val) - max(lengths) < target


def test_the_draw_follows_the_seed_and_is_spread_over_the_corpus() -> None:
    corpus = listed(*(f"document {i:03}" for i in range(200)))
    _, val = sides(corpus, 1)
    assert len(val) == 20
    assert val != sides(corpus, 2)[1]
    assert max(val) > "document 100" > min(val)


def test_a_huge_document_does_not_swallow_the_training_text() -> None:
    corpus = listed("x" * 100_000, *(f"document {i}" for i in range(30)))
    for seed in range(5):
        train, val = sides(corpus, seed)
        assert size(train) >= 100_000
        assert val


def test_equal_documents_larger_than_the_fraction_give_one_to_validation() -> None:
    assert sides(listed("a", "a", "a"), split="document") == (["a", "a"], ["a"])


def test_auto_draws_from_twenty_documents_on() -> None:
    def kind(count: int) -> str:
        corpus = listed("", *("document" for _ in range(count)))
        return Split(corpus, DataConfig(corpus="x"), 0).kind

    assert (kind(19), kind(20)) == ("tail", "document")


def test_shakespeare_is_cut_where_everybody_cuts_it(shared_data: Path) -> None:
    path = shared_data / "text" / "tinyshakespeare.txt"
    [train], [val] = sides(open_corpus(path))
    assert (len(train.encode()), len(val.encode())) == (1003854, 111540)
    assert (train + val).encode() == path.read_bytes()


def test_what_cannot_be_split_is_an_error() -> None:
    with pytest.raises(DataError, match="every document is empty"):
        sides(listed("", ""))
    with pytest.raises(DataError, match="set 'split' to tail"):
        sides(listed("only one"), split="document")
    for text in ("a", "😀"):
        with pytest.raises(DataError, match="too small to be split"):
            sides(listed(text))
        with pytest.raises(DataError, match="nothing is left for training"):
            list(Split(listed(text), DataConfig(corpus="x"), 0).train_pieces())


def test_rows_are_split_as_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"row {i}"}) + "\n" for i in range(40)))
    train, val = sides(open_corpus(path), val_fraction=0.2)
    assert sorted(train + val) == sorted(f"row {i}" for i in range(40))
    assert 8 <= len(val) <= 9


@pytest.mark.parametrize(
    "wrong",
    [
        {"corpus": " "},
        {"text_field": ""},
        {"split": "half"},
        {"val_fraction": 0.0},
        {"val_fraction": 1.0},
        {"val_fraction": float("nan")},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        build(DataConfig, {"corpus": "python"} | wrong)
