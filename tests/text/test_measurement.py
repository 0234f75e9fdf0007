"""What `mlxgpt.text.measurement` counts, against counting by hand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.text import Tokenizer, measure_compression, train_bpe, train_char
from mlxgpt.text.measurement import find_words, measure, split_words

TEXT = "hug pug hug pun bun hugs, " * 3


@pytest.fixture(scope="module")
def hug() -> Tokenizer:
    return train_bpe([TEXT], 264)


def measured(tokenizer: Tokenizer, *texts: str):
    return measure(tokenizer, [("all", text) for text in texts], find_words(texts))


def test_a_word_is_a_run_of_letters_and_marks() -> None:
    text = "It's 12 naïve nai\u0308ve x_y 日本。語"
    assert find_words([text, "naïve"]) == Counter(
        ["It", "s", "naïve", "nai\u0308ve", "x", "y", "日本", "語", "naïve"]
    )


def test_the_counts_are_those_of_encode(hug: Tokenizer) -> None:
    texts = ["hug a bug\n", "日本 hugs"]
    m = measured(hug, *texts)
    by_hand = Counter(i for text in texts for i in hug.encode(text))
    assert {i: n for i, n in enumerate(m.counts.tolist()) if n} == by_hand
    assert m.whole == measure_compression(hug, texts)
    assert m.vocab_use == len(by_hand) / (hug.vocab_size - 1), "specials do not count"
    assert (m.num_texts, m.num_changed, m.kept_share) == (2, 0, 1.0)
    best = m.most_frequent(3)
    assert [by_hand[i] for i in best] == sorted(by_hand.values(), reverse=True)[:3]
    assert best == sorted(best, key=lambda i: (-by_hand[i], i))


def test_words_are_encoded_as_after_a_space(hug: Tokenizer) -> None:
    assert [hug.token_bytes(i) for i in hug.encode(" hug bug")] == [b" hug", b" ", b"b", b"ug"]
    splits = split_words(hug, {"hug": 5, "bug": 2})
    assert (splits.num_words, splits.num_split, splits.num_tokens) == (7, 2, 5 + 2 * 2)
    assert splits.split_share == pytest.approx(2 / 7)
    assert splits.tokens_per_word == pytest.approx(9 / 7)


def test_a_word_counts_with_its_space() -> None:
    tokenizer = train_bpe([" hug hug"], 260)
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode("hug hug")] == [b"hu", b"g", b" hug"]
    assert split_words(tokenizer, {"hug": 1}).num_tokens == 1


def test_the_space_of_a_word_is_no_token_of_it() -> None:
    char = train_char(["a hug"])
    splits = split_words(char, {"hug": 1, "a": 1})
    assert (splits.num_split, splits.num_tokens) == (1, 4)


def test_the_longest_tokens_hold_a_letter() -> None:
    tokenizer = train_bpe(["-------- --------\n        ab\n" * 5], 290)
    text = "--------        ab"
    m = measured(tokenizer, text)
    lengths = [int(m.byte_lengths[i]) for i in tokenizer.encode(text)]
    assert max(lengths) >= 7
    assert [tokenizer.token_bytes(i) for i in m.longest(3)] == [b" ab"]


def test_groups_add_up(hug: Tokenizer) -> None:
    texts = [("b", "hug"), ("a", "pug pug"), ("b", "日")]
    m = measure(hug, texts, {})
    assert list(m.groups) == ["b", "a"]
    assert m.groups["b"] == measure_compression(hug, ["hug", "日"])
    assert m.groups["a"] == measure_compression(hug, ["pug pug"])


def test_progress_counts_bytes(hug: Tokenizer) -> None:
    seen: list[int] = []
    measure(hug, [("", "hug"), ("", "日")], {}, seen.append)
    assert seen == [3, 6]


def test_surrogates_are_measured_as_they_are_encoded(hug: Tokenizer) -> None:
    m = measured(hug, "\ud83d\ude00\udfff")
    assert (m.whole.num_bytes, m.num_changed) == (4 + 3, 0)


def test_nothing_is_no_division_by_zero(hug: Tokenizer) -> None:
    m = measured(hug)
    assert (m.whole.bytes_per_token, m.vocab_use, m.kept_share) == (0.0, 0.0, 1.0)
    assert (m.words.split_share, m.words.tokens_per_word) == (0.0, 0.0)
    assert m.most_frequent(3) == m.longest(3) == []


@given(st.lists(st.text(st.characters(), max_size=30), max_size=4))
def test_bytes_are_the_sum_over_the_tokens(hug: Tokenizer, texts: list[str]) -> None:
    m = measured(hug, *texts)
    assert m.whole.num_bytes == int(np.dot(m.counts, m.byte_lengths))
    assert m.words.num_split <= m.words.num_words <= m.words.num_tokens
