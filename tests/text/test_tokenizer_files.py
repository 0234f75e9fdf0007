"""Saved files: one form, the same bytes each time, written as a whole, read back as equal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import TokenizerError
from mlxgpt.text import END_OF_TEXT, PATTERNS, Tokenizer, train_bpe, train_char

DOCUMENTS = ["hug hug pug bun\n", "naïve café 日本語 👍👍"] * 2
BPE = train_bpe(DOCUMENTS, 330, special_tokens=[END_OF_TEXT, "<|pad|>"])
CHAR = train_char(DOCUMENTS)
both = pytest.mark.parametrize("tokenizer", [BPE, CHAR], ids=["bpe", "char"])


@both
def test_what_is_saved_is_read_back_as_equal(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "new" / "folder")
    loaded = Tokenizer.load(tmp_path / "new" / "folder")
    assert loaded == tokenizer
    assert loaded.content_hash == tokenizer.content_hash
    assert loaded.special_tokens == tokenizer.special_tokens
    assert loaded.kind == tokenizer.kind
    text = "a pug <|pad|> é ü\n"
    assert loaded.encode(text, "all") == tokenizer.encode(text, "all")
    assert Tokenizer.load(tmp_path / "new" / "folder" / "tokenizer.json") == tokenizer


@both
def test_saving_again_gives_the_same_bytes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "a")
    Tokenizer.load(tmp_path / "a").save(tmp_path / "b")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@given(
    st.lists(st.text(max_size=20), max_size=5),
    st.sampled_from([*PATTERNS, r"\w+|\s"]),
    st.sampled_from([(), (END_OF_TEXT,), ("<s>", "é 日", "Ġhug")]),
)
def test_any_trained_tokenizer_survives_saving(
    tmp_path_factory: pytest.TempPathFactory, documents, pattern, specials
) -> None:
    folder = tmp_path_factory.mktemp("saved")
    for tokenizer in (
        train_bpe(documents, 290, pattern=pattern, special_tokens=specials),
        train_char(documents, special_tokens=specials),
    ):
        tokenizer.save(folder)
        assert Tokenizer.load(folder) == tokenizer


def test_the_file_has_the_agreed_form(tmp_path: Path) -> None:
    BPE.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert content["version"] == "1.0"
    assert content["normalizer"] is None
    assert content["post_processor"] is None
    split, byte_level = content["pre_tokenizer"]["pretokenizers"]
    assert split["pattern"] == {"Regex": PATTERNS["gpt2"]}
    assert (split["behavior"], split["invert"]) == ("Isolated", False)
    assert (byte_level["add_prefix_space"], byte_level["use_regex"]) == (False, False)
    assert content["decoder"]["type"] == "ByteLevel"
    model = content["model"]
    assert (model["type"], model["dropout"], model["unk_token"]) == ("BPE", None, None)
    assert (model["byte_fallback"], model["ignore_merges"]) == (False, False)
    assert all(isinstance(merge, list) and len(merge) == 2 for merge in model["merges"])
    assert list(model["vocab"].values()) == list(range(BPE.vocab_size - 2))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    assert content["added_tokens"] == [
        {"id": BPE.vocab_size - 2, "content": END_OF_TEXT, **flags, "special": True},
        {"id": BPE.vocab_size - 1, "content": "<|pad|>", **flags, "special": True},
    ]


def test_the_config_names_the_end_of_text(tmp_path: Path) -> None:
    BPE.save(tmp_path / "with")
    config = json.loads((tmp_path / "with" / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["eos_token"] == config["bos_token"] == config["pad_token"] == END_OF_TEXT
    assert config["clean_up_tokenization_spaces"] is False
    train_char(["a"], special_tokens=[]).save(tmp_path / "without")
    assert "eos_token" not in json.loads((tmp_path / "without/tokenizer_config.json").read_text())


def test_a_json_path_is_the_file_itself(tmp_path: Path) -> None:
    BPE.save(tmp_path / "mine.json")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
    assert Tokenizer.load(tmp_path / "mine.json") == BPE


def test_a_failed_write_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BPE.save(tmp_path)
    before = (tmp_path / "tokenizer.json").read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(TokenizerError, match=r"cannot write .*tokenizer\.json: No space left"):
        CHAR.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2, "a temporary file was left behind"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TokenizerError, match="cannot write"):
        BPE.save(tmp_path / "file" / "below")


def test_the_hash_depends_on_all_that_changes_ids() -> None:
    hashes = {
        train_bpe(DOCUMENTS, 270, special_tokens=[END_OF_TEXT, "<|pad|>"]).content_hash,
        CHAR.content_hash,
        train_bpe(DOCUMENTS, 270, special_tokens=["<|pad|>", END_OF_TEXT]).content_hash,
        train_bpe(DOCUMENTS, 269, special_tokens=[END_OF_TEXT, "<|pad|>"]).content_hash,
        train_bpe(DOCUMENTS, 258, special_tokens=[END_OF_TEXT, "<|pad|>"]).content_hash,
        train_bpe(DOCUMENTS, 258, special_tokens=[END_OF_TEXT, "<|pad|>"], pattern="qwen2")
        .content_hash,
    }  # fmt: skip
    assert len(hashes) == 6
    assert all(len(digest) == 64 for digest in hashes)


def test_text_needs_no_mlx() -> None:
    program = "import sys, mlxgpt.text; sys.exit('mlx.core' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
