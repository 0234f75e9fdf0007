"""Files in the way of SentencePiece: spaces as U+2581, characters, bytes for the others."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_files import LLAMA_DECODERS, SPACE, sentencepiece

from mlxgpt.text import Tokenizer
from mlxgpt.text.own_engine import OwnEngine
from mlxgpt.text.stream_decoder import ByteStreamDecoder

TEXT = st.text("hug ▁an\n日é<0x>👍", max_size=20)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(tmp_path_factory.mktemp("llama"), sentencepiece())


def load(folder: Path, content: dict[str, Any]) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return Tokenizer.load(folder)


@given(TEXT)
def test_every_text_comes_back_but_for_the_marker(llama: Tokenizer, text: str) -> None:
    ids = llama.encode(text)
    assert llama.decode(ids) == text.replace(SPACE, " ")
    length = len(text.replace(SPACE, " ").encode()) + bool(text)
    assert llama.token_byte_lengths[ids].sum() == length, "with the space in front"


@given(st.data())
def test_a_stream_takes_a_space_away_only_at_the_start(
    llama: Tokenizer, data: st.DataObject
) -> None:
    one = st.integers(0, llama.vocab_size - 1)
    ids = data.draw(st.one_of(st.lists(one, max_size=12), TEXT.map(llama.encode)))
    for skip in (False, True):
        stream = llama.stream_decoder(skip)
        for _ in range(2):  # after finish it begins anew
            pieces = [stream.push(i) for i in ids]
            assert "".join([*pieces, stream.finish()]) == llama.decode(ids, skip)
            assert llama.decode(ids, skip) == llama.decode(ids, skip).replace(SPACE, " ")


def test_no_more_is_taken_away_than_the_file_says(llama: Tokenizer) -> None:
    for text in ("   hug", " ", "", "  "):
        stream = llama.stream_decoder()
        assert "".join([*map(stream.push, llama.encode(text)), stream.finish()]) == text
    # Bytes of what is stripped may come one at a time, and be something else in the end.
    pieces = [b"\xe2", b"\x96", b"\x81\xe2\x96", b"\x81", b"\xe2\x96\x81"]
    for ids, text in (
        ([0, 1, 2, 3, 4], "▁"),
        ([0, 1, 3], ""),
        ([0, 1], "\ufffd"),
        ([4, 0], "\ufffd"),
    ):
        stream = ByteStreamDecoder(
            pieces.__getitem__, first=None, stripped="▁".encode(), most_stripped=2
        )
        assert "".join([*map(stream.push, ids), stream.finish()]) == text


def test_tokens_are_shown_as_text(llama: Tokenizer) -> None:
    (hug,) = llama.encode("hug")
    assert llama.token_bytes(hug) == b" hug"
    assert llama.token_byte_lengths[hug] == 4
    assert llama.decode([hug, hug]) == "hug hug"
    assert llama.decode_bytes([hug, hug]) == b"hug hug"
    thumb = llama.encode("👍")
    assert [len(llama.token_bytes(i)) for i in thumb] == [1, 1, 1, 1, 1]
    assert llama.kind == "bpe"
    assert llama.byte_fallback


def test_a_special_token_before_it_keeps_the_space(llama: Tokenizer) -> None:
    ids = llama.encode("<s>hug", "all")
    assert llama.decode(ids) == "<s> hug"
    assert llama.decode(ids, skip_special=True) == "hug"
    assert llama.encode("hug", add_special_tokens=True)[0] == llama.special_tokens["<s>"]
    assert llama.decode(llama.encode("<s>")) == "<s>"
    assert llama.special_tokens["<s>"] not in llama.encode("<s>")


def test_metaspace_decodes_the_first_token_without_its_marker(tmp_path: Path) -> None:
    content = sentencepiece()
    mark = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    content |= {"normalizer": None, "pre_tokenizer": mark}
    content["decoder"] = {"type": "Sequence", "decoders": [mark, *LLAMA_DECODERS[1:3]]}
    tokenizer = load(tmp_path, content)
    ids = tokenizer.encode("hug hug")
    stream = tokenizer.stream_decoder()
    assert [*map(stream.push, ids), stream.finish()] == ["hug", " hug", ""]
    assert tokenizer.decode(ids) == "hug hug"
    assert tokenizer.decode(ids[1:]) == "hug"


@given(st.text("hug ▁an\n", max_size=30))
def test_words_are_short_and_their_ids_those_of_the_whole(llama: Tokenizer, text: str) -> None:
    engine = llama._engine
    assert isinstance(engine, OwnEngine)
    whole = SPACE + text.replace(" ", SPACE) if text else ""
    words = engine.pipeline.pre_tokenizer.split(whole)
    assert "".join(words) == whole
    assert all(SPACE not in word.lstrip(SPACE) for word in words)
    assert engine.model.encode_words(words) == engine.model.encode_words([whole] if whole else [])


def test_no_cut_where_a_merge_crosses(tmp_path: Path) -> None:
    content = sentencepiece()
    vocab = content["model"]["vocab"]
    vocab["n" + SPACE] = len(vocab)
    content["model"]["merges"].insert(0, f"n {SPACE}")
    for token in content["added_tokens"]:
        token["id"] += 1
    content["post_processor"]["special_tokens"]["<s>"]["ids"][0] += 1
    tokenizer = load(tmp_path, content)
    engine = tokenizer._engine
    assert isinstance(engine, OwnEngine)
    assert engine.pipeline.pre_tokenizer.split("an▁an▁hug▁hug") == ["an▁an▁hug", "▁hug"]
    assert vocab["n" + SPACE] in tokenizer.encode("an an")


def test_dropout_spells_words_by_their_characters(llama: Tokenizer) -> None:
    text = "hug a hug  an 日👍"
    plain = llama.encode(text)
    assert llama.encode(text, dropout=0.0, seed=5) == plain
    assert llama.decode(llama.encode(text, dropout=1.0)) == text
    assert len(llama.encode(text, dropout=1.0)) == 1 + len(text) + 3, "4 bytes for the thumb"
    some = {tuple(llama.encode(text, dropout=0.5, seed=seed)) for seed in range(50)}
    assert len(some) > 10
    assert all(llama.decode(ids) == text for ids in some)
