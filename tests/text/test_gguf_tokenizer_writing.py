"""What a GGUF file says of a tokenizer, and which tokenizers are refused, by the part at fault."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_files import (
    LLAMA_NORMALIZERS,
    SPACE,
    added,
    byte_level,
    in_a_row,
    sentencepiece,
    split,
    unigram,
    wordpiece,
)

from mlxgpt.errors import MLXGPTWarning, TokenizerError
from mlxgpt.text import Tokenizer, train_bpe, train_char
from mlxgpt.text.files.gguf_writing import gguf_tokenizer_metadata

TEXT = "the cat sat on the mat, and the dog lay down by the fire\n" * 9
Content = dict[str, Any]


def load(folder: Path, content: Content) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MLXGPTWarning)
        return Tokenizer.load(folder)


def said_of(tokenizer: Tokenizer, **options: Any) -> dict[str, Any]:
    said = gguf_tokenizer_metadata(tokenizer, **options)
    assert all(key.startswith("tokenizer.ggml.") for key in said)
    return {key.removeprefix("tokenizer.ggml."): value for key, value in said.items()}


def test_a_byte_level_one() -> None:
    tokenizer = train_bpe([TEXT], 262, pattern="qwen2", special_tokens=["<|endoftext|>", "<|im|>"])
    said = said_of(tokenizer, vocab_size=264)
    assert said["tokens"][:3] == ["!", '"', "#"]
    assert said["tokens"][220] == "Ġ"
    assert said["tokens"][256:] == [
        *(tokenizer.token_bytes(i).decode().replace(" ", "Ġ") for i in range(256, 260)),
        "<|endoftext|>", "<|im|>", "[PAD262]", "[PAD263]",
    ]  # fmt: skip
    assert said["token_type"] == [1] * 260 + [3, 3, 5, 5]
    assert said["merges"] == ["h e", "t he", "a t", "Ġ the"]
    del said["tokens"], said["token_type"], said["merges"]
    assert said == {
        "model": "gpt2", "pre": "qwen2",
        "bos_token_id": 260, "eos_token_id": 260, "padding_token_id": 260,
        "add_bos_token": False, "add_eos_token": False,
    }  # fmt: skip


def test_one_in_the_way_of_sentencepiece(tmp_path: Path) -> None:
    content = sentencepiece()
    content["added_tokens"].append(
        added("<tool>", len(content["model"]["vocab"]) + 3, special=False)
    )
    said = said_of(load(tmp_path, content), vocab_size=600)
    by_name = dict(
        zip(said["tokens"], zip(said["token_type"], said["scores"], strict=True), strict=True)
    )
    merged = ["hu", "hug", f"{SPACE}hug", SPACE * 2, "an", f"{SPACE}a", "Th", "12"]
    assert [by_name[name] for name in merged] == [(1, -1.0 - n) for n in range(8)]
    assert by_name["é"] == (1, 0.0)
    assert by_name["<0x0A>"] == by_name["<0xFF>"] == (6, 0.0)
    assert by_name["<unk>"] == (2, 0.0)
    assert by_name["<s>"] == by_name["</s>"] == (3, 0.0)
    assert by_name["<tool>"] == (4, 0.0)
    assert by_name["[PAD599]"] == (5, 0.0)
    ids = {name: said["tokens"].index(name) for name in ("<s>", "</s>", "<unk>")}
    del said["tokens"], said["token_type"], said["scores"]
    assert said == {
        "model": "llama", "pre": "default", "add_space_prefix": True,
        "bos_token_id": ids["<s>"], "eos_token_id": ids["</s>"], "unknown_token_id": ids["<unk>"],
        "padding_token_id": ids["</s>"], "add_bos_token": True, "add_eos_token": False,
    }  # fmt: skip


def test_characters() -> None:
    said = said_of(train_char(["a b\n"]))
    assert said["tokens"][:5] == ["\n", SPACE, "a", "b", "<0x00>"]
    assert said["token_type"] == [1] * 4 + [6] * 256 + [3]
    assert set(said["scores"]) == {0.0}
    assert said["add_space_prefix"] is False
    assert "merges" not in said


def test_spaces_before_a_text(tmp_path: Path) -> None:
    content = sentencepiece() | {"normalizer": LLAMA_NORMALIZERS[1]}
    assert said_of(load(tmp_path, content))["add_space_prefix"] is False
    mark = {"type": "Metaspace", "replacement": SPACE, "split": False}
    content["normalizer"] = None
    content["pre_tokenizer"] = mark | {"prepend_scheme": "never"}
    assert said_of(load(tmp_path, content))["add_space_prefix"] is False
    for scheme, note in (
        ("always", "a space before a text that begins with one, we do not"),
        ("first", "begins with one and behind special tokens, we do not"),
    ):
        content["pre_tokenizer"] = mark | {"prepend_scheme": scheme}
        with pytest.warns(MLXGPTWarning, match=note):
            assert said_of(load(tmp_path, content))["add_space_prefix"] is True


def test_ids_that_end_a_text() -> None:
    tokenizer = train_bpe([TEXT], 270, special_tokens=["<|endoftext|>", "<|a|>", "<|b|>", "<|c|>"])
    end, a, b, c = tokenizer.special_tokens.values()

    def ends(*stop_ids: int) -> tuple[Any, ...]:
        said = said_of(tokenizer, stop_ids=stop_ids)
        return tuple(said.get(f"{name}_token_id") for name in ("eos", "eot", "eom"))

    assert ends() == (end, None, None)
    assert ends(end) == (end, None, None)
    assert ends(b) == (b, None, None)
    assert ends(b, end) == (end, b, None)
    assert ends(c, b, a) == (a, b, c)
    with pytest.warns(MLXGPTWarning, match=f"room for 3 ids .* go on behind {c}"):
        assert ends(c, b, a, end) == (end, a, b)
    with pytest.warns(MLXGPTWarning, match="no id of this vocabulary.*: 999"):
        assert ends(b, 999) == (b, None, None)


def test_the_ends_of_a_template(tmp_path: Path) -> None:
    content = sentencepiece()
    begin, text = content["post_processor"]["single"]
    ending = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    known = content["post_processor"]["special_tokens"]
    last = known["<s>"]["ids"][0] + 1
    known["</s>"] = {"id": "</s>", "ids": [last], "tokens": ["</s>"]}
    content["post_processor"]["single"] = [text, ending]
    said = said_of(load(tmp_path, content))
    assert (said["add_bos_token"], said["add_eos_token"]) == (False, True)
    with pytest.raises(TokenizerError, match="'</s>' is put behind each text, and is none of"):
        said_of(load(tmp_path, content), stop_ids=[last - 1])
    content["post_processor"]["single"] = [begin, begin, text]
    with pytest.raises(TokenizerError, match="puts 2 tokens before a text and 0 behind it"):
        said_of(load(tmp_path, content))


def test_no_end_of_text_is_a_byte_that_no_text_has() -> None:
    tokenizer = train_bpe([TEXT], 260, special_tokens=[])
    with pytest.warns(MLXGPTWarning, match="no token ends a text"):
        said = said_of(tokenizer)
    assert tokenizer.token_bytes(said["eos_token_id"]) == b"\xff"
    assert said["eos_token_id"] == said["bos_token_id"]
    assert said_of(tokenizer, stop_ids=[7])["eos_token_id"] == 7


def change_merges(content: Content, *pairs: str) -> None:
    vocab = content["model"]["vocab"]
    new = len(vocab)
    for pair in pairs:
        vocab.setdefault(pair.replace(" ", ""), len(vocab))
    content["model"]["merges"] += pairs
    for token in content["added_tokens"]:
        token["id"] += len(vocab) - new
    content["post_processor"]["special_tokens"]["<s>"]["ids"][0] += len(vocab) - new


CHARACTERS: dict[str, tuple[Callable[[Content], Any], str]] = {
    "a token of two kinds": (lambda c: change_merges(c, "u g"), "'h' \\+ 'ug' is a token without"),
    "merged at two times": (
        lambda c: change_merges(c, "u g", "n s", "h ug"), "'h' \\+ 'ug' is merged at two different"
    ),
    "ignore_merges": (lambda c: c["model"].update(ignore_merges=True), "has no ignore_merges"),
    "lower case": (lambda c: c.update(normalizer={"type": "Lowercase"}), "normalizer Lowercase"),
    "another form": (lambda c: c.update(normalizer={"type": "NFKC"}), "normalizer NFKC"),
    "digits": (
        lambda c: c.update(pre_tokenizer={"type": "Digits", "individual_digits": True}),
        "normalizer Prepend",
    ),
    "digits alone": (
        lambda c: c.update(
            normalizer=None, pre_tokenizer={"type": "Digits", "individual_digits": True}
        ),
        "pre_tokenizer Digits",
    ),
    "another space": (
        lambda c: c.update(
            normalizer=None, pre_tokenizer={"type": "Metaspace", "replacement": "_"}
        ),
        "cannot write '_' for a space",
    ),
    "spaces as they are": (lambda c: c.update(normalizer=None), f"token with '{SPACE}'"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), CHARACTERS.values(), ids=CHARACTERS)
def test_what_scores_cannot_say(
    change: Callable[[Content], Any], message: str, tmp_path: Path
) -> None:
    content = sentencepiece()
    change(content)
    tokenizer = load(tmp_path, content)
    assert tokenizer.engine == "mlxgpt"
    with pytest.raises(TokenizerError, match=message) as caught:
        gguf_tokenizer_metadata(tokenizer)
    assert "export to hf instead" in str(caught.value)


BYTES: dict[str, tuple[Content, str]] = {
    "another pattern": (
        {"pre_tokenizer": in_a_row(split(r"\p{L}+|\s+"))},
        r"cutting text by \\p{L}\+\|\\s\+; .* patterns gpt2, llama3, qwen2",
    ),
    "no pattern": ({"pre_tokenizer": in_a_row()}, "cutting text by ByteLevel"),
    "other behaviour": (
        {"pre_tokenizer": in_a_row(split(" ", "MergedWithNext"))}, "by Split, ByteLevel"
    ),
    "strip": (
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        "normalizer Strip",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BYTES.values(), ids=BYTES)
def test_what_llama_cpp_has_no_name_for(change: Content, message: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        gguf_tokenizer_metadata(load(tmp_path, byte_level() | change))
    assert "export to hf instead" in str(caught.value)


def test_whole_words_are_a_name_of_their_own(tmp_path: Path) -> None:
    content = byte_level()
    content["model"]["ignore_merges"] = True
    with pytest.raises(TokenizerError, match="with ignore_merges; "):
        gguf_tokenizer_metadata(load(tmp_path, content))
    llama3 = train_bpe([TEXT], 300, pattern="llama3")
    assert said_of(llama3)["pre"] == "smaug-bpe"
    llama3.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["ignore_merges"] = True
    assert said_of(load(tmp_path, content))["pre"] == "llama-bpe"


@pytest.mark.parametrize("content", [wordpiece(), unigram()], ids=["wordpiece", "unigram"])
def test_other_kinds_are_refused(content: Content, tmp_path: Path) -> None:
    tokenizer = load(tmp_path, content)
    with pytest.raises(TokenizerError, match=r"a tokenizer with .* cannot be written as GGUF"):
        gguf_tokenizer_metadata(tokenizer)


def test_no_merges_and_doubled_names_are_refused() -> None:
    with pytest.raises(TokenizerError, match="without merges"):
        gguf_tokenizer_metadata(train_bpe([TEXT], 257))
    odd = train_bpe([TEXT], 262, special_tokens=["[PAD264]", "</s>"])
    with pytest.raises(TokenizerError, match=r"two ids would have the name '\[PAD264\]'"):
        gguf_tokenizer_metadata(odd, vocab_size=266)


def test_flags_that_a_file_cannot_hold_are_noted(tmp_path: Path) -> None:
    content = byte_level()
    new = len(content["model"]["vocab"]) + 1
    content["added_tokens"].append(added("<m>", new, lstrip=True, single_word=True))
    with pytest.warns(MLXGPTWarning, match="lstrip of 1 added tokens, single_word of 1"):
        gguf_tokenizer_metadata(load(tmp_path, content))
