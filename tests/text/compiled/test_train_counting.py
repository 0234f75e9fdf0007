"""Counting words in machine code: what Python counts, whatever has to grow on the way."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxgpt.text.bpe.splitting import PATTERNS, Splitter
from mlxgpt.text.bpe.word_counts import as_bytes, count_words
from mlxgpt.text.compiled.counted_words import CountedWords
from mlxgpt.text.compiled.counting import count_stretches
from mlxgpt.text.compiled.split_rules import rule_for
from mlxgpt.text.compiled.word_counter import WordCounter
from mlxgpt.text.compiled.word_table import LONGEST

WORDS = st.text(st.sampled_from("ab é中😀 1'\n"), max_size=30)
LONG = ["x" * length for length in (15, 16, 17, 24, 255, 256, LONGEST, LONGEST + 1)]


def as_counts(words: CountedWords) -> Counter[bytes]:
    letters, counts, start = words.letters.tobytes(), Counter(), 0
    for length, count in zip(words.lengths.tolist(), words.counts.tolist(), strict=True):
        counts[letters[start : start + length]] += count
        start += length
    assert start == len(letters)
    return counts


def counter(pattern: str = "gpt2", slots: int = 2) -> WordCounter:
    rule = rule_for([PATTERNS[pattern]])
    assert rule is not None
    return WordCounter(rule, slots=slots)


@given(st.lists(WORDS, max_size=12), st.sampled_from([*PATTERNS]))
@example([f"{word} {word}y {word}" for word in LONG], "gpt2")
@example(["", "a", "", "a"], "qwen2")
def test_the_kernels_count_what_python_counts(stretches: list[str], pattern: str) -> None:
    compiled = counter(pattern)
    for stretch in stretches:
        compiled.add(stretch)
    plain = as_bytes(count_words(stretches, Splitter([PATTERNS[pattern]])))
    assert as_counts(compiled.words()) == plain
    assert compiled.words().num_bytes == sum(len(stretch.encode()) for stretch in stretches)


def test_words_that_differ_only_in_length_or_padding_are_told_apart() -> None:
    compiled = counter("llama3")
    words = ["\0" * n for n in (1, 2, 7, 8, 9, 16, 17)] + ["\0" * 8 + "\1", "\1" + "\0" * 8]
    for word in words:
        compiled.add(word)
    assert as_counts(compiled.words()) == Counter(word.encode() for word in words)


def test_a_word_beyond_the_table_is_counted_all_the_same() -> None:
    compiled = counter()
    word = "é" * LONGEST
    for _ in range(3):
        compiled.add(word)
    assert as_counts(compiled.words()) == {word.encode(): 3}
    assert compiled.words().counts.tolist() == [1, 1, 1]


@given(st.lists(WORDS, max_size=6), st.lists(WORDS, max_size=6))
def test_counters_can_be_added_up(one: list[str], other: list[str]) -> None:
    first, second, both = counter(), counter(), counter()
    for stretch in one:
        first.add(stretch)
        both.add(stretch)
    for stretch in other:
        second.add(stretch)
        both.add(stretch)
    first.include(second.words())
    assert as_counts(first.words()) == as_counts(both.words())
    first.add("a")
    assert first.words().num_bytes == both.words().num_bytes + 1


def test_counts_are_64_bits_wide() -> None:
    compiled = counter()
    compiled.add("ab")
    for _ in range(2):
        compiled.include(CountedWords.of({b"ab": 3_000_000_000, b"cd": 2**40}))
    assert as_counts(compiled.words()) == {b"ab": 6_000_000_001, b"cd": 2**41}
    assert compiled.words().counts.dtype == np.int64


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_number_of_threads_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr("mlxgpt.text.compiled.counting._BATCH", 50)
    stretches = [f"word{i % 97} of {i % 13}, {'long' * (i % 7)}" for i in range(1500)]
    rule = rule_for([PATTERNS["gpt2"]])
    assert rule is not None
    counted = count_stretches(stretches, rule, threads)
    assert as_counts(counted) == as_bytes(count_words(stretches, Splitter([PATTERNS["gpt2"]])))
    assert len(counted.counts) == len(as_counts(counted)), "a word stands twice"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_while_reading_or_counting_ends_all_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr("mlxgpt.text.compiled.counting._BATCH", 4)
    rule = rule_for([PATTERNS["gpt2"]])
    assert rule is not None

    def broken() -> Iterator[str]:
        yield from ["text"] * 50
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        count_stretches(broken(), rule, threads)
    with pytest.raises(UnicodeEncodeError):
        count_stretches(["text"] * 20 + ["\ud83d"] * 20 + ["text"] * 200, rule, threads)
