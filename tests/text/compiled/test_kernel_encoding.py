"""The encode kernel against the plain merging of single words, whatever has to grow on the way."""

import random
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_models import SmallModel, fuzzed, learned, with_characters

from mlxgpt.errors import TokenizerError
from mlxgpt.text.bpe.dropout import Dropout
from mlxgpt.text.bpe.splitting import PATTERNS, Splitter
from mlxgpt.text.compiled.encoder import CompiledEncoder
from mlxgpt.text.compiled.loads import MIX_1
from mlxgpt.text.compiled.split_rules import SplitRule, rule_for
from mlxgpt.text.compiled.splitter import ends_of_words
from mlxgpt.text.compiled.word_table import word_keys

BYTES, SHUFFLED, CHARACTERS = learned(), learned(300, 2, shuffled=True), with_characters()
MODELS = {"bytes": BYTES, "shuffled": SHUFFLED, "characters": CHARACTERS}
WORDS = st.lists(st.binary(min_size=1, max_size=40) | st.text("ab", min_size=1).map(str.encode))
GPT2 = SplitRule(*(rule_for([PATTERNS["gpt2"]]) or ()))


def plain(model: SmallModel, words: list[bytes]) -> list[int]:
    return [token for word in words for token in merged(model, word)]


@cache
def merged(model: SmallModel, word: bytes) -> list[int]:
    """Merge by the definition: again and again the best pair, the leftmost one."""
    ids = model.symbols(word)
    while True:
        pairs = enumerate(pairwise(ids))
        ranked = [(model.table[pair], i) for i, pair in pairs if pair in model.table]
        if not ranked:
            return ids
        (_, product), i = min(ranked)
        ids[i : i + 2] = [product]


def ends_of(words: list[bytes]) -> np.ndarray:
    return np.cumsum([len(word) for word in words], dtype=np.int64)


@given(WORDS, st.sampled_from(["bytes", "shuffled"]))
def test_any_bytes_are_merged_as_the_definition_says(words: list[bytes], name: str) -> None:
    model = MODELS[name]
    got = model.encoder().encode(b"".join(words), ends_of(words))
    assert got.dtype == np.int32
    assert got.tolist() == plain(model, words)


@given(st.lists(st.text("abé中 ▁語😀xü\0", min_size=1, max_size=30), max_size=8))
def test_characters_are_merged_and_unknown_ones_are_spelled(words: list[str]) -> None:
    data = [word.encode() for word in words]
    got = CHARACTERS.encoder().encode(b"".join(data), ends_of(data))
    assert got.tolist() == plain(CHARACTERS, data)


@pytest.mark.parametrize("most_words", [1, 40, 1 << 18])
def test_texts_are_encoded_as_their_words_whatever_is_remembered(most_words: int) -> None:
    encoder = BYTES.encoder(most_words=most_words)
    splitter = Splitter([PATTERNS["gpt2"]])
    texts = fuzzed(400)
    for text in [*texts, "".join(texts), *texts]:
        words = splitter.split(text)
        data = text.encode()
        expected = plain(BYTES, [word.encode() for word in words])
        assert encoder.encode(data, GPT2).tolist() == expected
        assert encoder.encode(data, ends_of_words(words, data)).tolist() == expected
        assert BYTES.bytes_of(np.array(expected)) == data


@pytest.mark.parametrize("size", [15, 16, 17, 47, 48, 49, 50, 255, 256, 257, 600])
def test_words_on_either_side_of_each_limit(size: int) -> None:
    drawn = random.Random(size)
    words = [bytes(drawn.choices(b"ab", k=size)) for _ in range(3)] * 2
    for model in (BYTES, SHUFFLED, CHARACTERS):
        got = model.encoder(most_words=2).encode(b"".join(words), ends_of(words))
        assert got.tolist() == plain(model, words)


@pytest.mark.parametrize("text", ["a" * 200_000, "ab" * 100_000, " " * 200_000, "中" * 66_000])
def test_very_long_words_are_no_trap(text: str) -> None:
    """Quadratic work would take minutes."""
    data = text.encode()
    for dropout in (None, Dropout(0.1, 1), Dropout(1e-12, 1), Dropout(0.5, 1), Dropout(1.0, 1)):
        ids = BYTES.encoder().encode(data, np.array([len(data)]), dropout)
        assert BYTES.bytes_of(ids) == data
        assert (len(ids) == len(data)) == (dropout is not None and dropout.p == 1)
        if dropout is not None and dropout.p == 1e-12:
            assert ids.tolist() == BYTES.encoder().encode(data, np.array([len(data)])).tolist()


def test_long_words_with_one_hash_are_told_apart() -> None:
    """The hash of a long word can be inverted: what one block changes the last one undoes."""
    first, middle, last = (int.from_bytes(block, "little") for block in (b"abab" * 2,) * 3)
    mask, mix = 2**64 - 1, int(MIX_1)

    def step(hashed: int, block: int) -> int:
        mixed = (hashed ^ block) * mix & mask
        return mixed ^ mixed >> 29

    words = [b"ab" * 12]
    for other in (b"babababa", b"abcdefgh"):
        changed = int.from_bytes(other, "little")
        undone = last ^ step(step(0, first), middle) ^ step(step(0, first), changed)
        words.append(b"abababab" + other + undone.to_bytes(8, "little"))
    assert len({tuple(key) for key in word_keys(words).tolist()}) == 1
    got = BYTES.encoder().encode(b"".join(words * 2), ends_of(words * 2))
    assert got.tolist() == plain(BYTES, words * 2)


def test_words_that_are_tokens_are_not_merged_where_the_file_says_so() -> None:
    tokens = [BYTES.spelled[i] for i in range(len(BYTES.spelled))]
    more = [b"xyzzy", b"a long word of more than 16 bytes", b"z" * 300, b"ab" * 7 + b"zz"]
    tokens += [*more, None, b""]
    encoder = CompiledEncoder(BYTES.byte_ids, BYTES.merges, BYTES.products, whole_tokens=tokens)
    id_of = {token: i for i, token in enumerate(tokens) if token}
    words = [token for token in tokens if token] + [b"xyzz", b"xyzzyx", b"z" * 299]
    for _ in range(2):
        expected = [[id_of[w]] if w in id_of else plain(BYTES, [w]) for w in words]
        got = encoder.encode(b"".join(words), ends_of(words))
        assert got.tolist() == [token for ids in expected for token in ids]
    whole = sum(len(plain(BYTES, [w])) > 1 for w in id_of)
    assert whole >= len(more)
    # Under dropout they are whole as long as nothing was dropped; in the first one nothing can be.
    assert len(encoder.encode(b"xyzzy", np.array([5]), Dropout(1.0, 0))) == 1
    assert len(encoder.encode(more[-1], np.array([16]), Dropout(1.0, 0))) == 16


def test_byte_tokens_are_no_whole_words() -> None:
    tokens: list[bytes | None] = [None] * 1007
    for i, spelled in CHARACTERS.spelled.items():
        tokens[i] = spelled
    tokens.append(b"baba")
    encoder = CompiledEncoder(
        CHARACTERS.byte_ids,
        CHARACTERS.merges,
        CHARACTERS.products,
        char_ids=CHARACTERS.char_ids,
        whole_tokens=tokens,
    )
    words = [b"a", b"x", b"baba", b"bab", "語".encode()]
    expected = [*plain(CHARACTERS, [b"a", b"x"]), 1007, *plain(CHARACTERS, words[3:])]
    assert encoder.encode(b"".join(words), ends_of(words)).tolist() == expected


def test_eight_threads_give_what_one_gives() -> None:
    texts = [text.encode() for text in fuzzed(200, seed=5)] * 4
    for most_words in (8, 1 << 18):
        encoder = BYTES.encoder(most_words=most_words)
        for dropout in (None, Dropout(0.3, 9)):
            expected = [
                BYTES.encoder().encode(text, GPT2, dropout).tolist() for text in texts[:200]
            ]
            with ThreadPoolExecutor(8) as pool:
                got = list(pool.map(lambda text: encoder.encode(text, GPT2, dropout), texts))  # noqa: B023
            assert [ids.tolist() for ids in got] == expected * 4


def test_ids_may_have_31_bits() -> None:
    top = 2**31 - 1
    byte_ids = [top - byte for byte in range(256)]
    encoder = CompiledEncoder(byte_ids, [(top - 97, top - 98), (5, top - 97)], [5, 0])
    assert encoder.encode(b"abaab", np.array([3, 5])).tolist() == [0, 5]
    assert encoder.encode(b"\0", np.array([1])).tolist() == [top]


@pytest.mark.parametrize(
    ("byte_ids", "merges", "products", "says"),
    [
        (range(255), [], [], "needs 256 byte ids"),
        (range(256), [(0, 1)], [], "one product a merge"),
        (range(256), [(0, 1)], [2**31], "id 2147483648 .* is not in"),
        (range(256), [(-1, 1)], [256], "id -1 .* is not in"),
        (range(256), [(0, 1), (1, 0), (0, 1)], [256, 257, 258], "stands twice"),
        ([0, *range(255)], [], [], "have one id"),
        (
            range(256),
            np.arange(2 * 2**20, dtype=np.int64).reshape(-1, 2),
            np.arange(2**21, 2**21 + 2**20),
            "can hold 2097151",
        ),
    ],
)
def test_models_that_the_kernels_cannot_hold_are_refused(
    byte_ids: list[int], merges: list[tuple[int, int]], products: list[int], says: str
) -> None:
    with pytest.raises(TokenizerError, match=says):
        CompiledEncoder(byte_ids, merges, products)


@pytest.mark.parametrize("ends", [[], [1], [3], [1, 1, 2], [2, 1], [-1, 2], [0, 2]])
def test_ends_that_are_not_those_of_the_text_are_refused(ends: list[int]) -> None:
    with pytest.raises(TokenizerError, match="must ascend to 2"):
        BYTES.encoder().encode(b"ab", np.array(ends, np.int64))


def test_nothing_has_no_ids() -> None:
    for words in (GPT2, np.zeros(0, np.int64)):
        ids = BYTES.encoder().encode(b"", words)
        assert ids.dtype == np.int32
        assert ids.shape == (0,)
