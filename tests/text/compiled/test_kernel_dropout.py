"""Dropout in the kernels: the stream that `Dropout` defines, whatever the kernels remember."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kernel_models import SmallModel, fuzzed, learned, with_characters
from naive_dropout import encode

from mlxgpt.text.bpe.dropout import LONGEST_GAP, Dropout
from mlxgpt.text.bpe.splitting import PATTERNS
from mlxgpt.text.compiled import encode_kernel
from mlxgpt.text.compiled.loads import pad
from mlxgpt.text.compiled.split_rules import SplitRule, rule_for
from mlxgpt.text.compiled.splitter import word_ends

BYTES, SHUFFLED, CHARACTERS = learned(), learned(300, 2, shuffled=True), with_characters()
RATES = [0.0, 1e-12, 0.02, 0.1, 0.5, 0.9, 1 - 1e-9, 1.0]
GPT2 = SplitRule(*(rule_for([PATTERNS["gpt2"]]) or ()))


def naive(model: SmallModel, words: list[bytes], dropout: Dropout, position: int = 0) -> list[int]:
    ids: list[int] = []
    for word in words:
        ids += encode(model.symbols(word), model.table, dropout, position)
        position += len(word)
    return ids


def ends_of(words: list[bytes]) -> np.ndarray:
    return np.cumsum([len(word) for word in words], dtype=np.int64)


@given(
    st.lists(st.text("ab", min_size=1, max_size=90).map(str.encode) | st.binary(min_size=1)),
    st.sampled_from(RATES),
    st.integers(-(2**70), 2**70),
    st.integers(0, 2**40),
    st.booleans(),
)
@example([b"ab" * 120, b"ab" * 160, b"ab" * 20], 0.02, 3, 0, False)
def test_any_word_is_encoded_as_the_definition_says(
    words: list[bytes], p: float, seed: int, position: int, shuffled: bool
) -> None:
    model, dropout = SHUFFLED if shuffled else BYTES, Dropout(p, seed)
    got = model.encoder().encode(b"".join(words), ends_of(words), dropout, position)
    assert got.tolist() == naive(model, words, dropout, position)


@given(st.lists(st.text("abé中 語xü", min_size=1), max_size=8), st.sampled_from(RATES))
def test_words_of_characters_too(words: list[str], p: float) -> None:
    data, dropout = [word.encode() for word in words], Dropout(p, 5)
    got = CHARACTERS.encoder().encode(b"".join(data), ends_of(data), dropout)
    assert got.tolist() == naive(CHARACTERS, data, dropout)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.9])
def test_what_is_remembered_changes_nothing(p: float) -> None:
    texts = [text.encode() for text in fuzzed(80, seed=8)]
    large, small, tiny = (BYTES.encoder(most_words=n) for n in (1 << 16, 100, 1))
    for again in range(3):
        for seed, text in enumerate(texts):
            dropout = Dropout(p, seed % 100)
            ends = [piece.copy() for piece in word_ends(pad(text), len(text), GPT2, 1 << 15)]
            words = [text[a:b] for a, b in _spans(ends)]
            expected = naive(BYTES, words, dropout) if again == 0 else None
            ids = large.encode(text, GPT2, dropout).tolist()
            assert expected in (None, ids)
            assert ids == small.encode(text, GPT2, dropout).tolist()
            assert ids == tiny.encode(text, GPT2, dropout).tolist()
            # Plain encoding in between must neither use nor leave anything dropped.
            assert large.encode(text, GPT2).tolist() == tiny.encode(text, GPT2).tolist()


def _spans(pieces: list[np.ndarray]) -> list[tuple[int, int]]:
    ends = [end for piece in pieces for end in piece.tolist()]
    return list(zip([0, *ends], ends, strict=False))


def test_histories_of_all_lengths_occur() -> None:
    """Else the tests above would not reach what they are for."""
    words = [b"ab" * 20] * 400
    encoder = BYTES.encoder()
    encoder.encode(b"".join(words), ends_of(words), Dropout(0.3, 1))
    kept = encoder._memory().memory
    assert kept.state[encode_kernel.NODES] > LONGEST_GAP
    assert len(BYTES.symbols(words[0])) - len(encoder.encode(words[0], ends_of(words[:1]))) > 16


def test_a_text_may_come_in_pieces() -> None:
    words = [text.encode() for text in fuzzed(60, seed=4) if text]
    dropout, encoder = Dropout(0.3, 77), BYTES.encoder()
    whole = encoder.encode(b"".join(words), ends_of(words), dropout)
    parts, position = [], 0
    for word in words:
        parts.append(encoder.encode(word, np.array([len(word)]), dropout, position))
        position += len(word)
    assert np.concatenate(parts).tolist() == whole.tolist()
    other = encoder.encode(b"".join(words), ends_of(words), Dropout(0.3, 78))
    assert other.tolist() != whole.tolist()


def test_rates_of_zero_and_one() -> None:
    data = "".join(fuzzed(50)).encode()
    encoder = BYTES.encoder()
    plain = encoder.encode(data, GPT2)
    assert encoder.encode(data, GPT2, Dropout(0, 3)).tolist() == plain.tolist()
    assert encoder.encode(data, GPT2, Dropout(1, 3)).tolist() == BYTES.symbols(data)
    lengths = [len(encoder.encode(data, GPT2, Dropout(p, 3))) for p in (0, 0.1, 0.5, 0.9, 1)]
    assert lengths == sorted(set(lengths))
