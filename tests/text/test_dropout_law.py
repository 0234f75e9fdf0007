"""BPE-dropout has the law of the paper; the checks reject the laws of others and small mistakes."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from random import Random

import dropout_laws
import naive_bpe
import numpy as np
import pytest
import regex
from dropout_laws import TOO_MUCH, Parts, law_of_paper, surprise

from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.byte_alphabet import BYTE_ORDER, from_characters
from mlxgpt.text.bpe.dropout import LONGEST_GAP, Dropout
from mlxgpt.text.bpe.dropping import drop_and_merge, drops
from mlxgpt.text.bpe.splitting import PATTERNS

N = 20_000
COUNTS = {
    b"aaaaaaaa": 9,
    b" unfathomable": 3,
    b" fathom": 4,
    b" unable": 5,
    b" table": 6,
    b"banana": 2,
}
COUNTS |= {b" unfair": 3, b" an": 7, b" able": 4, b"abab": 3, b" than": 2}
WORDS = ["aaaaaaa", " unfathomable", "banana", "ababababa"]
RATES = [0.1, 0.4]

MERGES = naive_bpe.learn(COUNTS, 60)
RANKS = {pair: rank for rank, pair in enumerate(MERGES)}
BYTES = [bytes([byte]) for byte in BYTE_ORDER]
TOKENS = list(dict.fromkeys([*BYTES, *(left + right for left, right in MERGES)]))
MODEL = BPEModel(TOKENS, [(TOKENS.index(left), TOKENS.index(right)) for left, right in MERGES])


def symbols_of(word: str) -> list[bytes]:
    return [bytes([byte]) for byte in word.encode()]


def segmentations(word: str, dropout: Dropout, n: int, position: int = 0) -> list[Parts]:
    """What becomes of a word that stands `n` times in a row."""
    return cut(word, MODEL.encode_words([word] * n, dropout, position))


def cut(word: str, ids: list[int]) -> list[Parts]:
    words, parts = [], []
    for i in ids:
        parts.append(TOKENS[i])
        if sum(map(len, parts)) == len(word):
            words.append(tuple(parts))
            parts = []
    return words


def sample_of(word: str, bits: Callable[[int], Iterator[bool]], n: int = N) -> Counter[Parts]:
    """Segmentations of a word by our own merging with the bits of `bits(0)`, `bits(1)`, ..."""
    ids = [TOKENS.index(part) for part in symbols_of(word)]
    table = MODEL._table
    return Counter(tuple(TOKENS[i] for i in drop_and_merge(ids, table, bits(k))) for k in range(n))


@pytest.mark.parametrize("p", RATES)
@pytest.mark.parametrize("word", WORDS)
def test_segmentations_follow_the_law_of_the_paper(word: str, p: float) -> None:
    law = law_of_paper(symbols_of(word), RANKS, p)
    assert surprise(Counter(segmentations(word, Dropout(p, seed=5), N)), law) < TOO_MUCH, (
        "over positions"
    )
    over_seeds = Counter(segmentations(word, Dropout(p, seed), 1)[0] for seed in range(N // 4))
    assert surprise(over_seeds, law) < TOO_MUCH, "over seeds"


@pytest.mark.parametrize("word", WORDS)
def test_the_computed_law_is_that_of_independent_bits(word: str) -> None:
    law = law_of_paper(symbols_of(word), RANKS, 0.4)
    assert sum(law.values()) == pytest.approx(1)
    random = Random(3).random
    sample = Counter(
        tuple(naive_bpe.segment_dropping(symbols_of(word), RANKS, lambda: random() < 0.4))
        for _ in range(N // 4)
    )
    assert surprise(sample, law) < TOO_MUCH


@pytest.mark.parametrize(
    ("other", "word", "p"),
    [
        (dropout_laws.merge_all_occurrences, "banana", 0.1),
        (dropout_laws.merge_all_occurrences, "aaaaaaa", 0.4),
        (dropout_laws.drop_for_good, "aaaaaaa", 0.1),
        (dropout_laws.drop_for_good, " unfathomable", 0.4),
        (dropout_laws.stale_queue, " unfathomable", 0.1),
        (dropout_laws.stale_queue, "aaaaaaa", 0.4),
    ],
)
def test_the_laws_of_other_programs_are_told_apart(
    other: Callable[..., Parts], word: str, p: float
) -> None:
    random = Random(4).random
    law = law_of_paper(symbols_of(word), RANKS, p)
    sample = Counter(other(symbols_of(word), RANKS, lambda: random() < p) for _ in range(N))
    assert surprise(sample, law) > TOO_MUCH


@pytest.mark.parametrize("p", RATES)
def test_small_mistakes_are_told_apart(p: float) -> None:
    word = " unfathomable"
    law = law_of_paper(symbols_of(word), RANKS, p)
    assert surprise(sample_of(word, lambda k: drops(Dropout(p, 1), k)), law) < TOO_MUCH
    assert surprise(sample_of(word, lambda k: drops(Dropout(1.1 * p, 1), k)), law) > TOO_MUCH

    def one_kept_more(k: int) -> Iterator[bool]:
        bits = drops(Dropout(p, 1), k)
        for bit in bits:
            yield from (False, True) if bit else (False,)

    def first_gap_forever(k: int) -> Iterator[bool]:
        gap = next(i for i, bit in enumerate(drops(Dropout(p, 1), k)) if bit)
        return chain.from_iterable(repeat([*[False] * gap, True]))

    assert surprise(sample_of(word, one_kept_more), law) > TOO_MUCH
    assert surprise(sample_of(word, first_gap_forever), law) > TOO_MUCH


def chi_square(pairs: list[tuple[Parts, Parts]], most: int = 5) -> float:
    """Pearson's statistic of dependence, per degree of freedom; rare outcomes count as one."""
    columns = []
    for column in zip(*pairs, strict=True):
        common = [outcome for outcome, _ in Counter(column).most_common(most)]
        columns.append([common.index(o) if o in common else len(common) for o in column])
    table = np.zeros((max(columns[0]) + 1, max(columns[1]) + 1))
    np.add.at(table, tuple(map(np.array, columns)), 1)
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    return float(((table - expected) ** 2 / expected).sum() / freedom)


DEPENDENT = 3.0
"""Of 25 degrees of freedom, chance gives more than this once in about a million."""


@pytest.mark.parametrize("p", RATES)
def test_positions_seeds_and_words_are_independent(p: float) -> None:
    word = " unfathomable"
    n = 4000
    row = segmentations(word, Dropout(p, 1), 2 * n)
    assert chi_square(list(zip(row[::2], row[1::2], strict=True))) < DEPENDENT, "neighbours"
    other = segmentations(word, Dropout(p, 2), 2 * n)
    assert chi_square(list(zip(row, other, strict=True))) < DEPENDENT, "the next seed"
    far = segmentations(word, Dropout(p, 1), 2 * n, position=10**9)
    assert chi_square(list(zip(row, far, strict=True))) < DEPENDENT, "far away in the text"
    inside = segmentations(word, Dropout(p, 1), 2 * n, position=1)
    assert chi_square(list(zip(row, inside, strict=True))) < DEPENDENT, "one byte on"
    together = [(row[i], segmentations(word, Dropout(p, 1), 1, 13 * i)[0]) for i in range(200)]
    assert chi_square(together) > DEPENDENT, "equal draws must be seen"


def test_draws_are_uniform_and_those_of_the_plain_function() -> None:
    dropout = Dropout(0.5, seed=7)
    positions = np.arange(1 << 17, dtype=np.int64)
    draws = dropout.first_draws(positions)
    assert draws.dtype == np.uint64
    far = np.array([0, 1, 2**31, 2**40 + 3])
    assert dropout.first_draws(far).tolist() == [dropout.draw(int(i), 0) for i in far]
    for shift in (0, 28, 56):
        counts = np.bincount(((draws >> np.uint64(shift)) & np.uint64(255)).astype(int))
        deviation = (((counts - 512) ** 2) / 512).sum()
        assert 255 - 6 * 22.6 < deviation < 255 + 6 * 22.6, "chi-square, 255 degrees of freedom"
    x = draws.astype(float)
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 6 / 2**8.5
    gaps = [
        next(k for k, b in enumerate(chain(drops(dropout, i), [True])) if b) for i in range(999)
    ]
    assert max(gaps) < LONGEST_GAP
    assert abs(sum(gaps) / 999 - 1) < 6 * (2 / 999) ** 0.5, "a geometric gap has the mean (1-p)/p"


@pytest.mark.slow
def test_english_grows_by_as_many_tokens_as_the_law_says(shared_data: Path) -> None:
    file = shared_data / "tokenizers" / "gpt2" / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))["model"]
    tokens = [from_characters(name) for name in sorted(content["vocab"], key=content["vocab"].get)]
    id_of = {token: i for i, token in enumerate(tokens)}
    pairs = [
        tuple(from_characters(part) or b"" for part in m.split(" ")) for m in content["merges"]
    ]
    model = BPEModel(tokens, [(id_of[a], id_of[b]) for a, b in pairs])
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    text = (shared_data / "text" / "sotu.en.txt").read_text(encoding="utf-8")[200_000:215_000]
    words = [word for word in regex.findall(PATTERNS["gpt2"], text) if len(word) <= 12]
    mean = variance = 0.0
    for word, times in Counter(words).items():
        law = law_of_paper(symbols_of(word), ranks, 0.1)
        expected = sum(len(parts) * q for parts, q in law.items())
        mean += times * expected
        variance += times * sum((len(parts) - expected) ** 2 * q for parts, q in law.items())
    rounds = 8
    total = sum(len(model.encode_words(words, Dropout(0.1, seed))) for seed in range(rounds))
    assert abs(total / rounds - mean) < 5 * (variance / rounds) ** 0.5
    plain = len(model.encode_words(words))
    assert 1.25 < mean / plain < 1.33, "about 1.3 with this vocabulary"
