"""Words to ids: bytes or characters as first symbols, words that are not merged, refusals."""

import pickle
from collections.abc import Iterable

import naive_bpe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import TokenizerError
from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.byte_alphabet import BYTE_ORDER
from mlxgpt.text.bpe.dropout import Dropout
from mlxgpt.text.bpe.word_cache import LONGEST_CACHED, WordCache

BYTES = [bytes([byte]) for byte in BYTE_ORDER]

# As SentencePiece has it: a control token, the bytes, the merged pieces, the characters.
PIECES = ["▁l", "lo", "▁lo", "▁low", "aa", "aaaa", "日本", "▁", "l", "o", "w", "a", "日", "本", "e"]
PARTS = [("l", "o"), ("▁", "lo"), ("▁lo", "w"), ("▁", "l"), ("a", "a"), ("aa", "aa"), ("日", "本")]
FIRST = 1 + 256
RANKS = {(a.encode(), b.encode()): rank for rank, (a, b) in enumerate(PARTS)}
FALLBACK = BPEModel(
    [None, *(bytes([byte]) for byte in range(256)), *(piece.encode() for piece in PIECES)],
    [(FIRST + PIECES.index(a), FIRST + PIECES.index(b)) for a, b in PARTS],
    byte_fallback=True,
    byte_ids=range(1, 257),
)


def pieces_of(ids: Iterable[int]) -> list[str]:
    return [PIECES[i - FIRST] if i >= FIRST else f"<{i - 1:02X}>" for i in ids]


def test_characters_are_the_symbols_and_bytes_stand_for_unknown_ones() -> None:
    assert pieces_of(FALLBACK.encode_words(["▁low", "日本é"])) == ["▁low", "日本", "<C3>", "<A9>"]
    assert FALLBACK.encode_words(["A<0x41>"])[0] == 1 + 0x41
    assert FALLBACK.kind == "bpe"
    assert FALLBACK.char_ids is not None
    assert sorted(FALLBACK.char_ids) == sorted("▁lowa日本e")


@given(
    st.lists(st.text("▁lowa日本eéx👍", min_size=1, max_size=90), max_size=5),
    st.sampled_from([0.0, 1e-12, 0.1, 0.5, 1.0]),
    st.integers(0, 2**64),
)
def test_words_of_characters_have_the_ids_of_the_definition(words, p, seed) -> None:
    known = {piece for piece in PIECES if len(piece) == 1}
    expected = []
    position = 0
    for word in words:
        symbols = []
        for character in word:
            data = character.encode()
            symbols += [data] if character in known else [bytes([byte]) for byte in data]
        bits = naive_bpe.stream(p, seed, position) if p else iter(lambda: False, None)
        for part in naive_bpe.segment_in_order(symbols, RANKS, bits):
            piece = part.decode("utf-8", "replace")
            expected.append(FIRST + PIECES.index(piece) if piece in PIECES else 1 + part[0])
        position += len(word.encode())
    for model in (FALLBACK, pickle.loads(pickle.dumps(FALLBACK))):
        assert model.encode_words(words, Dropout(p, seed)) == expected


TOKENS = [*BYTES, b"ab", b"abc", b"bc", b"a" * 70]
PAIRS = [(TOKENS.index(b"a"), TOKENS.index(b"b")), (TOKENS.index(b"b"), TOKENS.index(b"c"))]


def test_a_word_that_is_a_token_is_not_merged_where_the_file_says_so() -> None:
    ab, abc, c = TOKENS.index(b"ab"), TOKENS.index(b"abc"), TOKENS.index(b"c")
    assert BPEModel(TOKENS, PAIRS).encode_words(["abc", "abcc"]) == [ab, c, ab, c, c]
    whole = BPEModel(TOKENS, PAIRS, ignore_merges=True)
    assert whole.encode_words(["abc", "abcc"]) == [abc, ab, c, c]
    assert pickle.loads(pickle.dumps(whole)).encode_words(["abc"]) == [abc]


@pytest.mark.parametrize("word", ["abc", "a" * 70])
def test_such_a_word_is_whole_only_where_nothing_is_dropped(word: str) -> None:
    whole = BPEModel(TOKENS, PAIRS, ignore_merges=True)
    merged = BPEModel(TOKENS, PAIRS)
    token = TOKENS.index(word.encode())
    seen = set()
    for seed in range(200):
        ids = whole.encode_words([word], Dropout(0.3, seed))
        first_is_dropped = next(naive_bpe.stream(0.3, seed, 0))
        if word == "abc" and first_is_dropped:
            assert ids == merged.encode_words([word], Dropout(0.3, seed))
        else:
            assert ids == [token], "no merge is possible or none was dropped"
        seen.add(tuple(ids))
    assert len(seen) == (3 if word == "abc" else 1)


def test_a_vocabulary_that_is_damaged_is_refused() -> None:
    with pytest.raises(TokenizerError, match="lacks 1 of the 256 bytes, first 0x61"):
        BPEModel([token for token in BYTES if token != b"a"], [])
    with pytest.raises(TokenizerError, match=r"ids 256 and 257 .* same bytes"):
        BPEModel([*BYTES, b"ab", b"ab"], [])
    with pytest.raises(TokenizerError, match=r"merge 1: b'b' \+ b'a' is no token"):
        BPEModel([*BYTES, b"ab"], [PAIRS[0], PAIRS[0][::-1]])
    with pytest.raises(TokenizerError, match="merge 1 stands twice: it is merge 0 as well"):
        BPEModel([*BYTES, b"ab"], [PAIRS[0], PAIRS[0]])
    for byte_ids in (None, range(255), range(1, 257)):
        with pytest.raises(TokenizerError, match="each of 256 bytes"):
            BPEModel([*BYTES, None], [], byte_fallback=True, byte_ids=byte_ids)
    with pytest.raises(TokenizerError, match="is no token"):  # a byte is no part of a merge
        tokens = [*(bytes([byte]) for byte in range(256)), b"a", b"b", b"ab"]
        BPEModel(tokens, [(0x61, 257)], byte_fallback=True, byte_ids=range(256))


def test_what_is_remembered_is_bounded() -> None:
    asked = []

    def find(word: str) -> int:
        asked.append(word)
        return len(word)

    cache = WordCache(find, most_words=3)
    long = "x" * (LONGEST_CACHED + 1)
    for word in ("a", "bb", "a", "ccc", long, long, "a"):
        assert cache[word] == len(word)
        assert len(cache) <= 3
    assert asked == ["a", "bb", "ccc", long, long]
    assert cache["dddd"] == 4
    assert list(cache) == ["dddd"]
