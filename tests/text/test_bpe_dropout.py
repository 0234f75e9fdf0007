"""BPE-dropout: the stream of random bits, the same ids by every way, and the edges of the rate."""

import itertools
import json
import pickle
from pathlib import Path
from random import Random

import naive_bpe
import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import TokenizerError
from mlxgpt.text import PATTERNS, Tokenizer, train_bpe
from mlxgpt.text.bpe import dropping, merging
from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.byte_alphabet import BYTE_ORDER, from_characters
from mlxgpt.text.bpe.dropout import Dropout
from mlxgpt.text.bpe.dropping import (
    drop_and_merge,
    drop_in_long_word,
    drop_in_short_word,
    drops,
    keeps_all,
)
from mlxgpt.text.bpe.merging import MergeTable, merge_table, merge_word

BYTES = [bytes([byte]) for byte in BYTE_ORDER]
COUNTS = {b"aaaaaaaa": 3, b"abab": 4, b"bab": 5, b" lower": 6, b" newest": 5, b" low": 9}
COUNTS |= {"né".encode(): 4, "日本".encode(): 3, b"a" * 80: 1, b" widest": 3}
MERGES = naive_bpe.learn(COUNTS, 60)
RANKS = {pair: rank for rank, pair in enumerate(MERGES)}
TOKENS = list(dict.fromkeys([*BYTES, *(left + right for left, right in MERGES)]))
PAIRS = [(TOKENS.index(left), TOKENS.index(right)) for left, right in MERGES]
MODEL = BPEModel(TOKENS, PAIRS)

WORDS = st.lists(
    st.one_of(
        st.text("ab", min_size=1, max_size=12),
        st.sampled_from([" lower", " newest", "né", "日本", "日", "x", "a" * 63, "ab" * 40]),
        st.integers(60, 150).map("a".__mul__),
    ),
    max_size=8,
)
RATE = st.sampled_from([1e-12, 0.01, 0.1, 0.5, 0.9, 1.0])
SEED = st.integers(-(2**63), 2**70)


def naive_ids(words: list[str], p: float, seed: int, position: int) -> list[int]:
    """Each word by the definition, from its first byte on."""
    ids = []
    for word in words:
        data = word.encode()
        symbols = [bytes([byte]) for byte in data]
        parts = naive_bpe.segment_in_order(symbols, RANKS, naive_bpe.stream(p, seed, position))
        ids += [TOKENS.index(part) for part in parts]
        position += len(data)
    return ids


@given(WORDS, RATE, SEED, st.integers(0, 2**40))
def test_words_have_the_ids_of_the_definition(words, p, seed, position) -> None:
    expected = naive_ids(words, p, seed, position)
    assert MODEL.encode_words(words, Dropout(p, seed), position) == expected
    fresh = pickle.loads(pickle.dumps(MODEL))
    assert fresh.encode_words(words, Dropout(p, seed), position) == expected


@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=20), st.integers(1, 5), min_size=1),
    st.text("ab", min_size=1, max_size=60),
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_both_ways_of_merging_agree_on_any_bits(counts, word, bits, random) -> None:
    merges = naive_bpe.learn({word.encode(): n for word, n in counts.items()}, 25)
    random.shuffle(merges)  # a foreign file may hold merges whose products come before their parts
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    tokens = [*BYTES, *(left + right for left, right in merges)]
    pairs = [(tokens.index(left), tokens.index(right)) for left, right in merges]
    table = merge_table(len(tokens), pairs, [tokens.index(left + right) for left, right in merges])
    symbols = [bytes([byte]) for byte in word.encode()]
    expected = naive_bpe.segment_in_order(symbols, ranks, itertools.cycle([*bits, False]))
    for way in (drop_in_short_word, drop_in_long_word, drop_and_merge):
        ids = way([tokens.index(s) for s in symbols], table, itertools.cycle([*bits, False]))
        assert [tokens[i] for i in ids] == expected


@given(st.floats(1e-6, 1), SEED, st.integers(0, 2**50), st.integers(0, 200))
def test_bits_are_those_of_the_definition(p, seed, position, n) -> None:
    bits = list(itertools.islice(drops(Dropout(p, seed), position), n))
    assert bits == list(itertools.islice(naive_bpe.stream(p, seed, position), n))
    for m in {0, n // 2, n, *(i + more for i, bit in enumerate(bits) if bit for more in (0, 1))}:
        assert keeps_all(Dropout(p, seed), position, m) is not any(bits[:m])


def test_the_stream_never_changes() -> None:
    dropout = Dropout(0.25, seed=2024)
    draws = [dropout.draw(position, k) for position in (0, 7) for k in (0, 1)]
    assert draws[:2] == [0xF9FD12B1A7162CCD, 0x4E429E57F936B093]
    assert draws[2:] == [0x3CBB8ED2F113D7F1, 0xD248BE34DA4434D7]
    ids = MODEL.encode_words([" lower", " newest", "aaaaaaa"], dropout)
    assert b"|".join(TOKENS[i] for i in ids) == b" low|er| newest|aa|aa|a|aa"


@given(WORDS, RATE, st.integers(0, 9))
def test_a_text_in_pieces_has_the_ids_of_the_whole(words, p, cut) -> None:
    head, tail = words[:cut], words[cut:]
    dropout = Dropout(p, 3)
    position = len("".join(head).encode())
    in_pieces = MODEL.encode_words(head, dropout) + MODEL.encode_words(tail, dropout, position)
    assert in_pieces == MODEL.encode_words(words, dropout)


def test_a_rate_of_one_leaves_the_symbols_and_tiny_rates_the_plain_ids() -> None:
    words = [" lower", " newest", "né", "a" * 200, "aaa"]
    plain = MODEL.encode_words(words)
    assert len(plain) < 40
    data = "".join(words).encode()
    assert MODEL.encode_words(words, Dropout(1, 5)) == [TOKENS.index(bytes([b])) for b in data]
    for p in (0, 0.0, 1e-300, 1e-12):
        assert all(MODEL.encode_words(words, Dropout(p, seed)) == plain for seed in range(50))


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), float("inf"), True, "0.1", None])
def test_other_rates_are_refused(p: float) -> None:
    with pytest.raises(TokenizerError, match="between 0 and 1"):
        Dropout(p, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_bpe(["lower lowest newest widest low new " * 5, "naïve café"], 290).save(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    """A tokenizer as users have it: trained, saved, loaded."""
    return Tokenizer.load(folder)


def merges_in(folder: Path) -> naive_bpe.Merges:
    entries = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["merges"]
    return [(from_characters(a) or b"", from_characters(b) or b"") for a, b in entries]


def test_many_seeds_give_many_segmentations_of_the_same_text(tokenizer) -> None:
    text = "lower lowest newest"
    results = {tuple(tokenizer.encode(text, dropout=0.5, seed=seed)) for seed in range(300)}
    assert len(results) >= 10
    assert {tokenizer.decode(ids) for ids in results} == {text}
    assert {tuple(tokenizer.encode(text, dropout=0.0, seed=seed)) for seed in range(300)} == {
        tuple(tokenizer.encode(text))
    }


def test_the_edges_of_the_rate_on_many_texts(tokenizer, folder) -> None:
    random = Random(1)
    pieces = ["low", "er", "est", " new", " wid", "e", "é", "ï", "日", "  ", "\n", ".", "7"]
    texts = ["".join(random.choices(pieces, k=random.randrange(9))) for _ in range(1000)]
    merges = merges_in(folder)
    totals = []
    for p in (0, 0.1, 0.5, 0.9, 1):
        encoded = [tokenizer.encode(text, dropout=p, seed=n) for n, text in enumerate(texts)]
        assert [tokenizer.decode(ids) for ids in encoded] == texts
        totals.append(sum(map(len, encoded)))
        if p == 0:
            for text, ids in zip(texts, encoded, strict=True):
                words = regex.findall(PATTERNS["gpt2"], text)
                parts = [part for w in words for part in naive_bpe.segment(w.encode(), merges)]
                assert [tokenizer.token_bytes(i) for i in ids] == parts
    assert totals == sorted(set(totals))
    assert totals[-1] == sum(len(text.encode()) for text in texts), "one token a byte"


def test_special_tokens_and_positions_behind_them(tokenizer) -> None:
    text = "lower<|endoftext|>lowest"
    for seed in range(50):
        ids = tokenizer.encode(text, allowed_special="all", dropout=0.5, seed=seed)
        assert ids.count(tokenizer.eot_id) == 1, "never cut"
        at = ids.index(tokenizer.eot_id)
        without = tokenizer.encode("lower", dropout=0.5, seed=seed)
        assert ids[:at] == without
    ids = tokenizer.encode("low low low", dropout=0.5, seed=3)
    assert tokenizer.encode_array("low low low", dropout=0.5, seed=3).tolist() == ids


def test_the_stream_goes_on_behind_an_added_token(tokenizer) -> None:
    """Equal words before and behind it are cut differently, as in one text without it."""
    same = 0
    for seed in range(100):
        ids = tokenizer.encode("lower<|endoftext|>lower", "all", dropout=0.5, seed=seed)
        at = ids.index(tokenizer.eot_id)
        same += ids[:at] == ids[at + 1 :]
    assert same < 60


def test_added_tokens_that_always_act_are_never_cut(tmp_path: Path) -> None:
    train_bpe(["lower lowest low"] * 5, 270).save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    (special,) = content["added_tokens"]
    n = special["id"] + 1
    content["added_tokens"].append({**special, "id": n, "content": "lowlow", "special": False})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = Tokenizer.load(tmp_path)
    for rate in (0.0, 0.5, 1.0):
        assert tokenizer.encode("lower lowlowlow", dropout=rate, seed=1).count(n) == 1


def test_seeds_of_numpy_are_seeds() -> None:
    assert Dropout(0.5, np.int64(-5)).draw(3, 1) == Dropout(0.5, -5).draw(3, 1)


class Counted(dict[int, int]):
    """A row of a merge table that counts how often it is asked."""

    asked = 0

    def get(self, *args: int) -> int:
        Counted.asked += 1
        return super().get(*args)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("run", [b"a", b"ab", b" low"])
def test_a_long_word_costs_look_ups_in_proportion_to_its_length(
    monkeypatch: pytest.MonkeyPatch, run: bytes, p: float
) -> None:
    table: MergeTable = [Counted(row) for row in MODEL._table]
    # The look-ups of the other way are as few, but it goes through the whole word each time.
    monkeypatch.delattr(dropping, "drop_in_short_word")
    monkeypatch.delattr(merging, "merge_short_word")

    def look_ups(n: int) -> int:
        ids = [MODEL.byte_ids[byte] for byte in (run * n)[:n]]
        Counted.asked = 0
        merge_word(ids, table) if p == 0 else drop_and_merge(ids, table, drops(Dropout(p, 1), 0))
        return Counted.asked

    once, twice = look_ups(10_000), look_ups(20_000)
    assert once < 10_000 * 12
    assert twice < 2.1 * once


def test_every_bit_of_a_seed_counts_and_numpys_numbers_do() -> None:
    seeds = [0, 1, -1, 2**64 - 1, 2**64, 2**64 + 1, 2**70, -(2**64), 2**127 + 1]
    assert len({Dropout(0.5, seed).base for seed in seeds}) == len(seeds)
    assert Dropout(np.float32(0.5), np.int64(7)).draw(3, 1) == Dropout(0.5, 7).draw(3, 1)
    assert Dropout(np.float32(0.5), 7).thresholds == Dropout(0.5, 7).thresholds
