"""What is not BPE goes through the `tokenizers` library, as a whole, and says so."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from small_files import added, byte_level, in_a_row, sentencepiece, split, unigram, wordpiece

from mlxgpt.errors import MLXGPTWarning, TokenizerError
from mlxgpt.text import Tokenizer

hf = pytest.importorskip("tokenizers")

TEXT = "[CLS]hugs, a bug hug <unk> PUG"


def load(folder: Path, content: dict[str, Any]) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.warns(MLXGPTWarning, match="`tokenizers` library does the whole encoding"):
        return Tokenizer.load(folder)


@pytest.mark.parametrize(("content", "kind"), [(wordpiece(), "wordpiece"), (unigram(), "unigram")])
def test_its_ids_and_texts_are_those_of_the_library(tmp_path: Path, content, kind) -> None:
    ours = load(tmp_path, content)
    theirs = hf.Tokenizer.from_str(json.dumps(content))
    theirs.no_truncation()
    assert (ours.kind, ours.engine) == (kind, "tokenizers")
    for special in (False, True):
        ids = theirs.encode(TEXT, add_special_tokens=special).ids
        assert ours.encode(TEXT, "all", add_special_tokens=special) == ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    assert ours.decode(ids, skip_special=True) == theirs.decode(ids)
    theirs.encode_special_tokens = True
    assert ours.encode(TEXT) == theirs.encode(TEXT, add_special_tokens=False).ids
    assert ours.encode("") == []


@pytest.mark.parametrize("content", [wordpiece(), unigram()])
def test_a_stream_gives_the_same_text(tmp_path: Path, content: dict[str, Any]) -> None:
    ours = load(tmp_path, content)
    for text in (TEXT, " ", "hug   s s", "bugs  ", "hugs hugs"):
        ids = ours.encode(text, "all")
        for skip in (False, True):
            stream = ours.stream_decoder(skip)
            pieces = [stream.push(i) for i in ids]
            assert "".join([*pieces, stream.finish()]) == ours.decode(ids, skip)


def test_only_the_allowed_special_tokens_act(tmp_path: Path) -> None:
    ours = load(tmp_path, wordpiece())
    text = "[UNK] hug [CLS]"
    assert ours.encode(text, "all") == [0, 2, 1]
    assert ours.encode(text, ["[CLS]"])[-1] == 1
    assert ours.encode(text, ["[CLS]"])[0] == 0, "brackets are unknown"
    assert len(ours.encode(text, ["[CLS]"])) > 3
    assert 1 not in ours.encode(text)
    with pytest.raises(TokenizerError, match="not a special token"):
        ours.encode(text, ["[SEP]"])


def test_saving_writes_the_same_meaning(tmp_path: Path) -> None:
    ours = load(tmp_path, wordpiece())
    ours.save(tmp_path / "new")
    content = json.loads((tmp_path / "new" / "tokenizer.json").read_text(encoding="utf-8"))
    assert content == wordpiece()
    with pytest.warns(MLXGPTWarning):
        again = Tokenizer.load(tmp_path / "new")
    assert again == ours
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert pickle.loads(pickle.dumps(ours)).encode(TEXT) == ours.encode(TEXT)


def test_dropout_is_refused_with_the_part(tmp_path: Path) -> None:
    ours = load(tmp_path, wordpiece())
    assert not ours.supports_dropout
    assert ours.encode("hug", dropout=0.0) == [2]
    with pytest.raises(TokenizerError, match=r"not possible .* because of model.type 'WordPiece'"):
        ours.encode("hug", dropout=0.1)


def test_bytes_of_tokens(tmp_path: Path) -> None:
    words = load(tmp_path, wordpiece())
    assert [words.token_bytes(i) for i in (0, 2, 4)] == [b"[UNK]", b" hug", b"s"]
    assert words.token_byte_lengths.tolist()[:5] == [0, 0, 4, 4, 1]
    pieces = load(tmp_path, unigram())
    assert [pieces.token_bytes(i) for i in (1, 2, 3)] == [b" ", b" hug", b"s"]


def model(**settings: Any) -> dict[str, Any]:
    content = byte_level()
    content["model"] |= settings
    return content


PARTS: dict[str, dict[str, Any]] = {
    "normalizer 'Nmt'": {**byte_level(), "normalizer": {"type": "Nmt"}},
    "normalizer 'BertNormalizer'": {
        **byte_level(),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
            "strip_accents": None, "lowercase": True,
        },
    },
    "pre_tokenizer 'UnicodeScripts'": {
        **byte_level(), "pre_tokenizer": in_a_row({"type": "UnicodeScripts"})
    },
    "the pattern '.*' with ": {**byte_level(), "pre_tokenizer": in_a_row(split("a$"))},
    "an empty pattern": {
        **byte_level(),
        "pre_tokenizer": in_a_row({**split(" "), "pattern": {"String": ""}}),
    },
    "steps behind ByteLevel": {
        **byte_level(),
        "pre_tokenizer": {
            "type": "Sequence", "pretokenizers": [in_a_row(), {"type": "WhitespaceSplit"}]
        },
    },
    "decoder 'WordPiece'": {**byte_level(), "decoder": wordpiece()["decoder"]},
    "decoder None for this model": {**sentencepiece(), "decoder": None},
    "steps after Fuse": {
        **sentencepiece(),
        "decoder": {
            "type": "Sequence",
            "decoders": [{"type": "Fuse"}, {"type": "Metaspace", "replacement": "_"}],
        },
    },
    "model.end_of_word_suffix '</w>'": model(end_of_word_suffix="</w>"),
    "loss for characters": {**byte_level(), "pre_tokenizer": None},
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_parts_that_are_not_implemented_are_named(tmp_path: Path, part: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(PARTS[part]), encoding="utf-8")
    with pytest.warns(MLXGPTWarning, match=part):
        ours = Tokenizer.load(tmp_path)
    theirs = hf.Tokenizer.from_str(json.dumps(PARTS[part]))
    for text in ("The hug of a pug", "", "don't  12<s>"):
        assert ours.encode(text, "all") == theirs.encode(text, add_special_tokens=False).ids
    assert ours.kind == "bpe"


def test_unknown_tokens_and_merges_over_special_ones_need_it(tmp_path: Path) -> None:
    content = byte_level()
    vocab = content["model"]["vocab"]
    vocab["Āx"] = vocab.pop("Ā")
    content["model"]["unk_token"] = "T"
    assert "unk_token" in str(load(tmp_path, content).fallback_reason)
    content = byte_level()
    content["added_tokens"][0] = added("The", content["model"]["vocab"]["The"])
    assert "merges over the special token" in str(load(tmp_path, content).fallback_reason)
    content = sentencepiece()
    vocab = content["model"]["vocab"]
    vocab["<0x41><0x42>"] = len(vocab)
    content["model"]["merges"].append("<0x41> <0x42>")
    for token in content["added_tokens"]:
        token["id"] += 1
    content["post_processor"] = None
    assert "merges over the byte token" in str(load(tmp_path, content).fallback_reason)


def test_what_the_library_refuses_too_is_an_error_of_one_line(tmp_path: Path) -> None:
    content = wordpiece()
    content["model"]["vocab"] = 5
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(
        TokenizerError, match=r"tokenizer\.json: the `tokenizers` library says"
    ) as e:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(e.value)
    content = wordpiece()
    content["model"]["vocab"]["far"] = 50
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(TokenizerError, match="a hole or a double: 9 is missing"):
        Tokenizer.load(tmp_path)


def test_the_literal_of_a_special_token_is_text_even_where_it_is_a_piece(tmp_path: Path) -> None:
    content = unigram()
    vocab = content["model"]["vocab"]
    end = len(vocab)
    vocab.append(["</s>", 0.0])
    content["added_tokens"].append(added("</s>", end))
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [end], "tokens": ["</s>"]}},
    }
    tokenizer = load(tmp_path, content)
    assert end in tokenizer.encode("hug</s>hug", "all")
    assert end not in tokenizer.encode("hug</s>hug")
    assert tokenizer.encode("hug</s>hug", add_special_tokens=True).count(end) == 1
    assert tokenizer.encode("hug", add_special_tokens=True) == [*tokenizer.encode("hug"), end]
    content["model"]["unk_id"] = None
    vocab.extend([character, -20.0] for character in "hug</>")
    with pytest.raises(TokenizerError, match="holds '</s>', which this tokenizer cannot tell"):
        load(tmp_path, content).encode("hug</s>")
