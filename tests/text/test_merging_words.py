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
from mlxgpt.text.bpe.byte_alphabet import BYTE_ORDER
from mlxgpt.text.bpe.merging import (
    LONG_WORD,
    MergeTable,
    merge_long_word,
    merge_short_word,
    merge_table,
    merge_word,
)

WORD = st.text("ab", min_size=1, max_size=40).map(str.encode)
COUNTS = st.dictionaries(WORD, st.integers(1, 5), min_size=1, max_size=10)
BYTES = [bytes([byte]) for byte in BYTE_ORDER]
WAYS = (merge_short_word, merge_long_word, merge_word)


def tokens_and_table(merges: naive_bpe.Merges) -> tuple[list[bytes], MergeTable]:
    tokens = list(dict.fromkeys([*BYTES, *(left + right for left, right in merges)]))
    id_of = {token: i for i, token in enumerate(tokens)}
    pairs = [(id_of[left], id_of[right]) for left, right in merges]
    return tokens, merge_table(len(tokens), pairs, [id_of[a + b] for a, b in merges])


@given(COUNTS, WORD, st.randoms(use_true_random=False))
def test_both_ways_of_merging_follow_the_definition(counts, word, random) -> None:
    merges = naive_bpe.learn(counts, 30)
    random.shuffle(merges)  # a foreign file may hold merges whose products come before their parts
    tokens, table = tokens_and_table(merges)
    ids = [BYTES.index(bytes([byte])) for byte in word]
    for way in WAYS:
        assert [tokens[i] for i in way(ids, table)] == naive_bpe.segment(word, merges)


def test_a_merge_that_enables_an_earlier_one_yields_to_it() -> None:
    # (ab, a) has the first rank: once the first (a, b) is joined it comes before the second.
    table = merge_table(4, merges=[(2, 0), (0, 1)], products=[3, 2])
    ids = [0, 1, 0, 1]
    assert merge_short_word(ids, table) == merge_long_word(ids, table) == [3, 1]


def test_two_merges_with_one_product_leave_the_leftmost_place_first() -> None:
    a, b, c, ab, bc, abc, abca = range(7)
    merges = {(a, b): ab, (ab, c): abc, (abc, a): abca, (b, c): bc, (a, bc): abc}
    for order in (list(merges), list(merges)[::-1], [*list(merges)[2:], *list(merges)[:2]]):
        table = merge_table(7, order, [merges[pair] for pair in order])
        for ids in ([a, b, c, a, b, c], [a, b, c] * 3, [a, a, b, c, b, c, a]):
            assert merge_short_word(ids, table) == merge_long_word(ids, table)


def test_words_on_either_side_of_the_threshold_agree() -> None:
    _, table = tokens_and_table(naive_bpe.learn({b"abababbbaa" * 20: 1}, 40))
    for n in range(LONG_WORD - 3, LONG_WORD + 4):
        ids = [BYTES.index(bytes([byte])) for byte in (b"abbab" * n)[:n]]
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
