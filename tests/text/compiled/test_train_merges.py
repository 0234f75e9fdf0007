"""Learning merges in machine code: what the plain tier, the definition and `tokenizers` learn."""

import json
import random
from collections.abc import Mapping

import naive_bpe
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.text.bpe.learned_merges import LearnedMerges
from mlxgpt.text.bpe.learned_merges import learn_merges as learn_plain
from mlxgpt.text.compiled import merge_learner
from mlxgpt.text.compiled.counted_words import CountedWords
from mlxgpt.text.compiled.merge_learner import learn_merges

FEW_LETTERS = st.dictionaries(
    st.text("ab", min_size=1, max_size=16).map(str.encode), st.integers(1, 9), max_size=12
)
MORE_LETTERS = st.dictionaries(
    st.text("abc'é ", min_size=1, max_size=24).map(str.encode),
    st.sampled_from([1, 2, 3, 2**31 - 1, 2**31, 2**33]),
    max_size=20,
)
WORDS = st.one_of(FEW_LETTERS, MORE_LETTERS)
LEAST = st.sampled_from([None, 1, 3, 40, 2**32])


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with so little room that every table has to grow."""
    monkeypatch.setattr(merge_learner, "_FEWEST_ROWS", 2)


def merged_bytes(learned: LearnedMerges) -> naive_bpe.Merges:
    return [(learned.tokens[a], learned.tokens[b]) for a, b in learned.merges]


@given(
    WORDS,
    st.integers(0, 40),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([None, 2, 3, 4]),
    st.lists(st.sampled_from([b"ab", b"aa", b"bab", b"a", b"abcabc", "é".encode()]), unique=True),
    LEAST,
)
def test_both_tiers_learn_the_same(
    words: Mapping[bytes, int],
    n_merges: int,
    min_frequency: int,
    longest: int | None,
    forbidden: list[bytes],
    least: int | None,
) -> None:
    settings = {"min_frequency": min_frequency, "max_token_length": longest, "forbidden": forbidden}
    compiled = learn_merges(CountedWords.of(words), 256 + n_merges, first_least=least, **settings)
    assert compiled == learn_plain(words, 256 + n_merges, **settings)


@given(FEW_LETTERS, st.integers(0, 25), LEAST)
def test_the_merges_are_those_of_counting_anew(
    words: Mapping[bytes, int], n_merges: int, least: int | None
) -> None:
    learned = learn_merges(CountedWords.of(words), 256 + n_merges, first_least=least)
    naive = naive_bpe.learn(words, len(learned.merges))
    assert merged_bytes(learned) == naive
    if len(learned.tokens) < 256 + n_merges:
        assert naive_bpe.learn(words, len(naive) + 1) == naive, "stopped although a pair was left"


@given(WORDS, st.sampled_from([2, 3, 4]), st.integers(1, 5), LEAST)
def test_every_merge_occurs_often_enough_at_its_turn(
    words: Mapping[bytes, int], longest: int, min_frequency: int, least: int | None
) -> None:
    learned = learn_merges(
        CountedWords.of(words),
        600,
        max_token_length=longest,
        min_frequency=min_frequency,
        first_least=least,
    )
    parts = {word: [bytes([byte]) for byte in word] for word in words}
    for pair, count in zip(merged_bytes(learned), learned.counts, strict=True):
        assert naive_bpe.count_pairs(parts, words)[pair] == count >= min_frequency
        parts = {word: naive_bpe.join(p, pair) for word, p in parts.items()}


def test_runs_of_one_byte_are_counted_overlapping_and_merged_from_the_left() -> None:
    learned = learn_merges(CountedWords.of({b"aaaaaaa": 3, b"aab": 2, b"baab": 2}), 256 + 6)
    assert merged_bytes(learned) == [
        (b"a", b"a"),
        (b"aa", b"aa"),
        (b"aa", b"b"),
        (b"aa", b"a"),
        (b"aaaa", b"aaa"),
        (b"b", b"aab"),
    ]
    assert learned.counts == [22, 6, 4, 3, 3, 2]


def test_counts_beyond_32_bits_are_exact() -> None:
    words = {b"ab": 3_000_000_000, b"cd": 5, b"ef": 2**61, b"gh": 2**31}
    learned = learn_merges(CountedWords.of(words), 260)
    assert merged_bytes(learned) == [(b"e", b"f"), (b"a", b"b"), (b"g", b"h"), (b"c", b"d")]
    assert learned.counts == [2**61, 3_000_000_000, 2**31, 5]


def test_tables_grow_for_pairs_as_for_places() -> None:
    """ab, abc, ... each meet 60 bytes anew; many places elsewhere leave room for theirs."""
    run = b"abcdefghijklmnop"
    words = {bytes([byte]) + run: 1 for byte in range(128, 188)}
    words |= {run[:length]: 9000 - 500 * length for length in range(2, len(run))}
    repeated = {bytes([a, b]): 40 for a in b"QRSTUVWXYZ" for b in b"QRSTUVWXYZ"}
    distinct, once = CountedWords.of(words), CountedWords.of(dict.fromkeys(repeated, 1))
    counted = CountedWords(
        np.concatenate([distinct.letters, *[once.letters] * 40]),
        np.concatenate([distinct.lengths, *[once.lengths] * 40]),
        np.concatenate([distinct.counts, *[once.counts] * 40]),
    )
    assert learn_merges(counted, 330, first_least=1) == learn_plain({**words, **repeated}, 330)


def test_a_word_that_stands_twice_counts_twice() -> None:
    words = CountedWords(
        np.frombuffer(bytearray(b"abcdab"), np.uint8), np.full(3, 2), np.array([2, 3, 2])
    )
    learned = learn_merges(words, 258)
    assert (merged_bytes(learned), learned.counts) == ([(b"a", b"b"), (b"c", b"d")], [4, 3])


@pytest.mark.parametrize("words", [{}, {b"a": 5}, {b"ab": 0}])
def test_nothing_to_learn_gives_the_bytes_alone(words: dict[bytes, int]) -> None:
    learned = learn_merges(CountedWords.of(words), 1000)
    assert (len(learned.tokens), learned.merges) == (256, [])
    assert learn_merges(CountedWords.of({b"ab": 9}), 100).tokens == learned.tokens


def test_positions_of_64_bits_lead_to_the_same_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {b"banana": 3, b"ananas": 2, b"bandana": 1}
    expected = learn_plain(words, 270)
    monkeypatch.setattr(merge_learner, "_FEWEST_INT64", 1)
    assert learn_merges(CountedWords.of(words), 270) == expected


def test_progress_goes_on_in_steps_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_learner, "STEPS", 2)
    for wanted, expected in ((261, [258, 260, 261]), (999, [258, 260, 261])):
        seen: list[tuple[int, int]] = []
        words = CountedWords.of({b"abcdef": 2})
        learn_merges(words, wanted, progress=lambda done, total, to=seen: to.append((done, total)))
        assert seen == [(done, wanted) for done in expected]


@pytest.mark.parametrize("least", [None, 1])
def test_the_merges_are_those_of_the_tokenizers_library(least: int | None) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    drawn = random.Random(5)
    syllables = ["na", "ba", "ti", "é", "中", "aa", "'s", "0"]
    words = {
        "".join(drawn.choices(syllables, k=drawn.randint(1, 7))): drawn.randint(1, 40)
        for _ in range(600)
    }
    reference = tokenizers.Tokenizer(tokenizers.models.BPE())
    reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + 900, initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    texts = (word for word, count in words.items() for _ in range(count))
    reference.train_from_iterator(texts, trainer)
    model = json.loads(reference.to_str())["model"]
    ids = model["vocab"]
    counted = CountedWords.of({word.encode(): count for word, count in words.items()})
    learned = learn_merges(counted, 256 + 900, min_frequency=2, first_least=least)
    assert learned.merges == [(ids[a], ids[b]) for a, b in model["merges"]]
    assert len(learned.merges) > 300


@pytest.mark.timeout(60)
def test_one_word_of_half_a_million_bytes_is_no_obstacle() -> None:
    word = b"".join(b"%x" % (i * i * 7919) for i in range(70_000))
    words = CountedWords.of({word: 1})
    assert learn_merges(words, 700, first_least=900) == learn_plain({word: 1}, 700)
