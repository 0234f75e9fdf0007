"""Word counts -> merges: the incremental trainer against one that counts anew at each step."""

from collections.abc import Mapping

import naive_bpe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.text.bpe.learned_merges import LearnedMerges, learn_merges

WORDS = st.dictionaries(
    st.text("ab", min_size=1, max_size=16).map(str.encode), st.integers(1, 9), max_size=12
)
MORE_WORDS = st.dictionaries(
    st.text("abc'é ", min_size=1, max_size=24).map(str.encode), st.integers(1, 3), max_size=20
)


def merged_bytes(learned: LearnedMerges) -> naive_bpe.Merges:
    return [(learned.tokens[a], learned.tokens[b]) for a, b in learned.merges]


def test_runs_of_one_byte_are_counted_overlapping_and_merged_from_the_left() -> None:
    learned = learn_merges({b"aaaaaaa": 3, b"aab": 2, b"baab": 2}, 256 + 6)
    assert merged_bytes(learned) == [
        (b"a", b"a"),
        (b"aa", b"aa"),
        (b"aa", b"b"),
        (b"aa", b"a"),
        (b"aaaa", b"aaa"),
        (b"b", b"aab"),
    ]
    assert learned.counts == [22, 6, 4, 3, 3, 2]


@given(st.one_of(WORDS, MORE_WORDS), st.integers(0, 25))
def test_incremental_counts_lead_to_the_merges_of_counting_anew(
    words: Mapping[bytes, int], n_merges: int
) -> None:
    learned = learn_merges(words, 256 + n_merges)
    naive = naive_bpe.learn(words, len(learned.merges))
    assert merged_bytes(learned) == naive
    if len(learned.tokens) < 256 + n_merges:
        assert naive_bpe.learn(words, len(naive) + 1) == naive, "stopped although a pair was left"


@given(WORDS)
def test_the_order_of_the_words_does_not_matter(words: Mapping[bytes, int]) -> None:
    turned = dict(reversed(words.items()))
    assert learn_merges(words, 290) == learn_merges(turned, 290)


@given(WORDS, st.sampled_from([2, 3, 4]), st.integers(1, 5))
def test_every_merge_occurs_often_enough_at_its_turn(
    words: Mapping[bytes, int], max_length: int, min_frequency: int
) -> None:
    learned = learn_merges(words, 600, max_token_length=max_length, min_frequency=min_frequency)
    parts = {word: [bytes([byte]) for byte in word] for word in words}
    for pair, count in zip(merged_bytes(learned), learned.counts, strict=True):
        assert naive_bpe.count_pairs(parts, words)[pair] == count >= min_frequency
        assert len(pair[0] + pair[1]) <= max_length
        parts = {word: naive_bpe.join(p, pair) for word, p in parts.items()}
    left = {
        pair: count
        for pair, count in naive_bpe.count_pairs(parts, words).items()
        if len(pair[0] + pair[1]) <= max_length
    }
    assert max(left.values(), default=0) < min_frequency, "stopped too early"


def test_counts_beyond_32_bits_are_exact() -> None:
    learned = learn_merges({b"ab": 3_000_000_000, b"cd": 5, b"ef": 2**70}, 259)
    assert merged_bytes(learned) == [(b"e", b"f"), (b"a", b"b"), (b"c", b"d")]
    assert learned.counts == [2**70, 3_000_000_000, 5]


@given(WORDS, st.sampled_from([None, 3]), st.sampled_from([[], [b"ab", b"aa"]]))
def test_no_two_tokens_have_the_same_bytes(words, max_length, forbidden) -> None:
    learned = learn_merges(words, 600, max_token_length=max_length, forbidden=forbidden)
    assert len(set(learned.tokens)) == len(learned.tokens) == 256 + len(learned.merges)
    assert not set(learned.tokens) & set(forbidden)


def test_forbidden_bytes_are_never_made() -> None:
    learned = learn_merges({b"abc": 10, b"abd": 9}, 300, forbidden=[b"ab"])
    assert (b"a", b"b") not in merged_bytes(learned)
    assert merged_bytes(learned)[0] == (b"b", b"c")


def test_nothing_to_learn_gives_the_bytes_alone() -> None:
    assert learn_merges({}, 1000).tokens == learn_merges({b"a": 5}, 1000).tokens
    assert len(learn_merges({}, 1000).tokens) == 256


def test_progress_counts_tokens() -> None:
    seen: list[tuple[int, int]] = []
    learn_merges({b"abcd": 2}, 258, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(257, 258), (258, 258)]


@pytest.mark.timeout(60)
def test_one_word_of_half_a_million_bytes_is_no_obstacle() -> None:
    word = b"".join(b"%x" % (i * i * 7919) for i in range(70_000))
    learned = learn_merges({word: 1}, 700)
    assert len(learned.tokens) == 700
