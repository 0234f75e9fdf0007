"""ids -> text: every text comes back, half a character waits, a wrong id is named."""

import multiprocessing
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import TokenizerError
from mlxgpt.text import Tokenizer, repair_surrogates, train_bpe, train_char

DOCUMENTS = ["hug hug pug\n", "naïve café 日本語 👍👍", "x = [1, 22, 333]\r\n"]
BPE = train_bpe(DOCUMENTS, 330)
LLAMA = train_bpe(DOCUMENTS, 330, pattern="llama3")
CHAR = train_char(DOCUMENTS)
ALL = st.sampled_from([BPE, LLAMA, CHAR])
TEXT = st.one_of(st.text(), st.text("hug <0xA>é日👍\n\t '", max_size=40))
ANY_STRING = st.text(st.characters(exclude_categories=[]), max_size=20)


@given(ALL, TEXT)
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert tokenizer.token_byte_lengths[ids].sum() == len(text.encode())
    assert tokenizer.token_byte_lengths.shape == (tokenizer.vocab_size,)


@given(ALL, ANY_STRING)
def test_surrogates_are_repaired_by_one_rule(tokenizer: Tokenizer, text: str) -> None:
    repaired = repair_surrogates(text)
    assert tokenizer.encode(text) == tokenizer.encode(repaired)
    assert tokenizer.decode(tokenizer.encode(text)) == repaired


def test_a_surrogate_pair_is_its_character_and_a_lone_half_is_not() -> None:
    assert repair_surrogates("\ud83d\udc4d") == "👍"
    assert repair_surrogates("a\ud83db") == "a\ufffdb"
    assert repair_surrogates("\udc4d\ud83d") == "\ufffd\ufffd"
    assert repair_surrogates("\ud83d\ud83d\udc4d") == "\ufffd👍"
    plain = "text without any"
    assert repair_surrogates(plain) is plain


def test_training_and_encoding_agree_about_surrogates() -> None:
    assert train_bpe(["\ud83d\udc4d \ud83d"] * 3, 300) == train_bpe(["👍 \ufffd"] * 3, 300)
    assert train_char(["\ud83d\udc4d \ud83d"]) == train_char(["👍 \ufffd"])
    assert BPE.encode("\ud83d\udc4d") == BPE.encode("👍")


@given(ALL, st.data())
def test_a_stream_gives_the_same_text_and_never_half_a_character(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(
        st.one_of(
            st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20),
            TEXT.map(tokenizer.encode),
        )
    )
    for skip in (False, True):
        stream = tokenizer.stream_decoder(skip_special=skip)
        pieces = [stream.push(i) for i in ids]
        assert "".join([*pieces, stream.finish()]) == tokenizer.decode(ids, skip_special=skip)


def test_a_stream_waits_for_the_other_half_of_a_character() -> None:
    tokenizer = train_char(["a"])
    stream = tokenizer.stream_decoder()
    ids = tokenizer.encode("👍a")
    assert [stream.push(i) for i in ids] == ["", "", "", "👍", "a"]
    assert stream.push(ids[0]) == ""
    assert stream.finish() == "\ufffd"
    assert stream.push(ids[-1]) == "a", "after finish the stream begins anew"


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    half = BPE.encode("é")[:1] if len(BPE.encode("é")) > 1 else CHAR.encode("ü")[:1]
    tokenizer = BPE if len(BPE.encode("é")) > 1 else CHAR
    assert tokenizer.decode([*half, *tokenizer.encode("a")]) == "\ufffda"


@pytest.mark.parametrize("tokenizer", [BPE, CHAR], ids=["bpe", "char"])
@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_an_id_outside_the_vocabulary_is_named(tokenizer: Tokenizer, wrong: int) -> None:
    for use in (tokenizer.decode, tokenizer.decode_bytes):
        with pytest.raises(TokenizerError, match=f"id {wrong} is not in this vocabulary"):
            use([0, wrong])
    with pytest.raises(TokenizerError, match=f"id {tokenizer.vocab_size} is not"):
        tokenizer.stream_decoder().push(tokenizer.vocab_size)


def test_ids_may_come_from_numpy_but_not_as_fractions() -> None:
    ids = BPE.encode("hug pug")
    assert BPE.decode(np.array(ids, dtype=np.uint16)) == "hug pug"
    with pytest.raises(TypeError):
        BPE.decode([0.5])  # pyright: ignore[reportArgumentType]


def encode_in_worker(tokenizer: Tokenizer) -> tuple[str, list[int]]:
    return tokenizer.content_hash, tokenizer.encode("hug <|endoftext|> é", allowed_special="all")


@pytest.mark.parametrize("tokenizer", [BPE, CHAR], ids=["bpe", "char"])
def test_a_pickled_tokenizer_is_small_and_the_same(tokenizer: Tokenizer) -> None:
    before = len(pickle.dumps(tokenizer))
    tokenizer.encode(" ".join(f"word{i}" for i in range(5000)))
    data = pickle.dumps(tokenizer)
    assert len(data) == before < 20_000, "the cache of words travels along"
    assert pickle.loads(data) == tokenizer
    assert encode_in_worker(pickle.loads(data)) == encode_in_worker(tokenizer)


@pytest.mark.slow
def test_a_spawned_worker_can_use_it() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(encode_in_worker, (BPE,)) == encode_in_worker(BPE)


def test_the_cache_of_words_stays_bounded() -> None:
    from mlxgpt.text.bpe.word_cache import LONGEST_CACHED, WordCache

    cache = WordCache(len, most_words=3)
    long = "e" * (LONGEST_CACHED + 1)
    assert [cache[word] for word in ("a", "bb", "ccc", "dddd", long)] == [1, 2, 3, 4, len(long)]
    assert list(cache) == ["dddd"]


@pytest.mark.parametrize("text", ["\ud83d", "a\udc4d", "\ud83d\udc4d"])
def test_arrays_and_lists_repair_surrogates_alike(text: str) -> None:
    tokenizer = train_bpe([], 257)
    assert tokenizer.encode_array(text).tolist() == tokenizer.encode(text)
