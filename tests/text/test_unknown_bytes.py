"""Byte-level vocabularies that lack bytes: the ids of the library, and a warning of the loss."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_files import byte_level

from mlxgpt.errors import MLXGPTWarning
from mlxgpt.text import Tokenizer
from mlxgpt.text.bpe.byte_alphabet import to_characters

hf = pytest.importorskip("tokenizers")

LOST = [0x04, ord("!"), ord("'"), 0xA9, 0xF1]


def without_bytes() -> dict[str, Any]:
    content = byte_level()
    model = content["model"]
    gone = {to_characters(bytes([byte])) for byte in LOST}
    kept = [token for token in model["vocab"] if not gone & set(token)]
    model["vocab"] = {token: i for i, token in enumerate(kept)}
    model["merges"] = [pair for pair in model["merges"] if not gone & set("".join(pair))]
    content["added_tokens"][0]["id"] = len(kept)
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lacking")
    (folder / "tokenizer.json").write_text(json.dumps(without_bytes()), encoding="utf-8")
    return folder


def test_what_is_known_needs_no_warning(folder: Path, tmp_path: Path) -> None:
    ours = Tokenizer.load(folder)
    assert (ours.engine, ours.fallback_reason, ours.supports_dropout) == ("mlxgpt", None, True)
    text = "The hug of 日本"
    assert ours.decode(ours.encode(text)) == text
    ours.save(tmp_path / "new")
    again = Tokenizer.load(tmp_path / "new")
    assert again == pickle.loads(pickle.dumps(ours)) == ours
    assert again.vocab_size == ours.vocab_size == len(ours.token_byte_lengths)
    assert again.encode("The hug", "all", dropout=1.0) == ours.encode("The hug", dropout=1.0)


@pytest.mark.parametrize(
    ("text", "left", "lost"),
    [("a\x04b", "ab", "0x04"), ("don't!", "dont", "0x21, 0x27"), ("!'", "", "0x21, 0x27")],
)
def test_what_is_left_out_is_said(folder: Path, text: str, left: str, lost: str) -> None:
    ours = Tokenizer.load(folder)
    with pytest.warns(MLXGPTWarning, match=f"no token for the byte {lost}, which is left out"):
        ids = ours.encode(text)
    assert ours.decode(ids) == left


@given(st.text("hug !'\x04é\u00a9\U00040000日\n", max_size=20))
@pytest.mark.filterwarnings("ignore::mlxgpt.errors.MLXGPTWarning")
def test_the_ids_are_those_of_the_library(folder: Path, text: str) -> None:
    theirs = hf.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = Tokenizer.load(folder)
    assert ours.encode(text) == theirs.encode(text).ids
    assert max(ours.encode(text, dropout=0.5), default=0) < ours.vocab_size
