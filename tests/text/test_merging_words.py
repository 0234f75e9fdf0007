"""The two ways of merging a word against the definition, and their time on long words."""

import argparse
import pickle
import statistics
import subprocess
import time

import naive_bpe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.text import Tokenizer, train_bpe, train_char
from mlxgpt.text.byte_alphabet import BYTE_ORDER
from mlxgpt.text.learned_merges import learn_merges
from mlxgpt.text.merging import (
    LONG_WORD,
    MergeTable,
    merge_long_word,
    merge_short_word,
    merge_word,
    pair_key,
)

WORD = st.text("ab", min_size=1, max_size=40).map(str.encode)
COUNTS = st.dictionaries(WORD, st.integers(1, 5), min_size=1, max_size=10)
FIRST_ID = {byte: i for i, byte in enumerate(BYTE_ORDER)}


def table_of(tokens: list[bytes], merges: list[tuple[int, int]]) -> MergeTable:
    ids = {token: i for i, token in enumerate(tokens)}
    ranks = {pair_key(*pair): rank for rank, pair in enumerate(merges)}
    return MergeTable(ranks, [ids[tokens[a] + tokens[b]] for a, b in merges])


@given(COUNTS, WORD, st.randoms(use_true_random=False))
def test_both_ways_of_merging_follow_the_definition(counts, word, random) -> None:
    learned = learn_merges(counts, 285)
    merges = list(learned.merges)
    random.shuffle(merges)  # a foreign file may hold merges whose products come before their parts
    table = table_of(learned.tokens, merges)
    ids = [FIRST_ID[byte] for byte in word]
    named = [(learned.tokens[a], learned.tokens[b]) for a, b in merges]
    expected = naive_bpe.segment(word, named)
    for way in (merge_short_word, merge_long_word, merge_word):
        assert [learned.tokens[i] for i in way(ids, table)] == expected


def test_a_merge_that_enables_an_earlier_one_yields_to_it() -> None:
    tokens = [b"a", b"b", b"ab", b"aba"]
    # (ab, a) has the first rank: once the first (a, b) is joined it comes before the second.
    table = table_of(tokens, [(2, 0), (0, 1)])
    ids = [0, 1, 0, 1]
    assert merge_short_word(ids, table) == merge_long_word(ids, table) == [3, 1]


def test_words_on_either_side_of_the_threshold_agree() -> None:
    learned = learn_merges({b"abababbbaa" * 20: 1}, 300)
    table = table_of(learned.tokens, learned.merges)
    for n in range(LONG_WORD - 3, LONG_WORD + 4):
        ids = [FIRST_ID[byte] for byte in (b"abbab" * n)[:n]]
        assert merge_word(ids, table) == merge_short_word(ids, table) == merge_long_word(ids, table)


def prose() -> str:
    text = ""
    for module in (argparse, subprocess, statistics):
        with open(module.__file__, encoding="utf-8") as file:
            text += file.read()
    return text[:200_000]


def seconds(tokenizer: Tokenizer, text: str) -> float:
    """The better of two times of a tokenizer that has seen nothing yet."""
    times = []
    for _ in range(2):
        fresh = pickle.loads(pickle.dumps(tokenizer))
        start = time.process_time()
        fresh.encode(text)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama3", "char"])
def test_long_runs_take_about_the_time_of_prose(kind: str) -> None:
    text = prose()
    assert len(text) == 200_000
    runs = ["a" * 3000, " " * 3000, "^" * 3000]
    documents = [text, *runs]
    if kind == "char":
        tokenizer = train_char([text.replace("^", "")])
    else:
        tokenizer = train_bpe(documents, 1500, pattern=kind)
        assert len(tokenizer.encode("a" * 3000)) < 50, "the runs must have merges to be a test"
    usual = seconds(tokenizer, text)
    for character in "a ^":
        once = seconds(tokenizer, character * 200_000)
        twice = seconds(tokenizer, character * 400_000)
        assert once < 10 * usual, character
        assert twice < 3 * once + 0.02, character
