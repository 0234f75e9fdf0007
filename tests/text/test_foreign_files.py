"""tokenizer.json files of others: the forms that they come in, and what these mean."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlxgpt.errors import TokenizerError
from mlxgpt.text import PATTERNS, Tokenizer, train_bpe, train_char
from mlxgpt.text.files.vocabulary import read_merges

TEXT = "The capital of France is"
BPE = train_bpe(["The capital of France is Paris. # #version a"] * 3, 280)
CHAR = train_char(["abc"])
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def content(tmp_path: Path) -> dict[str, Any]:
    BPE.save(tmp_path)
    return json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.fixture
def load(tmp_path: Path) -> Callable[[dict[str, Any]], Tokenizer]:
    def load(content: dict[str, Any]) -> Tokenizer:
        file = tmp_path / "foreign.json"
        file.write_text(json.dumps(content), encoding="utf-8")
        return Tokenizer.load(file)

    return load


def test_both_spellings_of_merges_give_the_same_tokenizer(content, load) -> None:
    pairs = copy.deepcopy(content)
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    assert load(content) == load(pairs) == BPE
    assert len(load(content).encode(TEXT)) < len(TEXT) / 2


def test_a_merge_that_begins_with_a_hash_is_no_comment(content, load) -> None:
    vocab = content["model"]["vocab"]
    content["pre_tokenizer"]["pretokenizers"].pop(0)
    named = [["#", "v"], ["#v", "e"], ["#", "0.2"], ["0.", "2"], ["0", "."]]
    content["added_tokens"] = []
    vocab.clear()
    vocab.update({token: i for i, token in enumerate(_byte_names())})
    for new in ("#v", "#ve", "0.", "0.2", "#0.2"):
        vocab[new] = len(vocab)
    for merges in (named, [" ".join(pair) for pair in named]):
        content["model"]["merges"] = merges
        tokenizer = load(content)
        assert tokenizer.num_merges == len(named)
        assert tokenizer.decode_bytes(tokenizer.encode("#ve")[:1]) == b"#ve"


def _byte_names() -> list[str]:
    from mlxgpt.text.bpe.byte_alphabet import BYTE_ORDER, to_characters

    return [to_characters(bytes([byte])) for byte in BYTE_ORDER]


def test_a_part_with_a_space_is_read_as_a_pair_and_not_guessed() -> None:
    vocab = {token: i for i, token in enumerate(["a b", "c", "a bc", "a", "b c", "ab c"])}
    assert read_merges([["a b", "c"]], vocab) == [(0, 1)]
    for names in (vocab, {"a b": 0, "c": 1, "a bc": 2}):
        with pytest.raises(TokenizerError, match=r"merges\[0\] cannot be divided"):
            read_merges(["a b c"], names)


def test_gpt2s_form_is_read(content, load) -> None:
    content["model"].pop("type")
    content["pre_tokenizer"] = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True
    }  # fmt: skip
    content["post_processor"] = {
        "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False
    }  # fmt: skip
    content["model"]["continuing_subword_prefix"] = ""
    assert load(content) == BPE


def test_splits_are_applied_one_after_the_other(content, load) -> None:
    steps = content["pre_tokenizer"]["pretokenizers"]
    steps.insert(0, {**steps[0], "pattern": {"String": "i"}})
    steps[-1]["use_regex"] = True
    tokenizer = load(content)
    assert tokenizer.patterns == ("i", PATTERNS["gpt2"], PATTERNS["gpt2"])
    assert len(BPE.encode(" is")) == 1
    pieces = [tokenizer.token_bytes(i) for i in tokenizer.encode(" is")]
    assert pieces == [b" ", b"i", b"s"], "nothing may be merged across a cut"


def test_the_string_of_a_split_is_no_regular_expression(content, load) -> None:
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"String": "a.c"}
    pieces = load(content)
    assert pieces.decode(pieces.encode("abc a.c")) == "abc a.c"
    assert pieces.patterns == (r"a\.c",)


def test_no_split_lets_merges_cross_spaces(content, load) -> None:
    content["pre_tokenizer"] = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False
    }  # fmt: skip
    content["model"]["vocab"]["sĠ"] = content["added_tokens"][0]["id"]
    content["added_tokens"][0]["id"] += 1
    content["model"]["merges"].insert(0, ["s", "Ġ"])
    assert load(content).token_bytes(load(content).encode("s s")[0]) == b"s "


def test_with_ignore_merges_a_whole_word_is_its_token(content, load, tmp_path) -> None:
    content["model"]["vocab"]["zq"] = content["added_tokens"][0]["id"]
    content["added_tokens"][0]["id"] += 1
    assert len(load(content).encode("zq")) == 2, "no merge leads to it"
    content["model"]["ignore_merges"] = True
    tokenizer = load(content)
    assert tokenizer.encode("zq") == [content["model"]["vocab"]["zq"]]
    tokenizer.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again") == tokenizer


def test_added_tokens_may_stand_anywhere_and_need_not_be_special(content, load, tmp_path) -> None:
    vocab = content["model"]["vocab"]
    shifted = {token: i + 1 for token, i in vocab.items()}
    content["model"]["vocab"] = {"<s>": 0, **shifted}
    n = len(shifted) + 1
    content["added_tokens"] = [
        {"id": 0, "content": "<s>", "special": True, "normalized": False},
        {"id": n, "content": "  ", "special": False, "normalized": True},
        {"id": n + 1, "content": "<t>", "special": False, "rstrip": True},
    ]
    tokenizer = load(content)
    assert tokenizer.vocab_size == n + 2
    assert tokenizer.special_tokens == {"<s>": 0}
    T = tokenizer.encode("T")
    assert tokenizer.encode("T  T<t> T") == [*T, n, *T, n + 1, *T]
    # As in the library, what one token takes away with it can be another one.
    assert tokenizer.encode("T<t>  T") == [*T, n + 1, n, *T]
    assert 0 not in tokenizer.encode("<s>")
    assert tokenizer.encode("<s>", allowed_special="all") == [0]
    assert tokenizer.decode([n + 1, 0, n]) == "<t><s>  "
    assert tokenizer.decode([n + 1, 0, n], skip_special=True) == "<t>  "
    assert tokenizer.token_byte_lengths[[0, n, n + 1]].tolist() == [0, 2, 3]
    tokenizer.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again") == tokenizer


def test_flags_that_are_missing_are_off(content, load) -> None:
    content["added_tokens"] = [{"id": content["added_tokens"][0]["id"], "content": "T hug"}]
    tokenizer = load(content)
    assert tokenizer.special_tokens == {}
    assert tokenizer.encode("T hug") == [tokenizer.vocab_size - 1]


def test_metaspace_without_a_scheme_says_it_by_its_prefix(content, load) -> None:
    steps = content["pre_tokenizer"]["pretokenizers"]
    old = {"type": "Metaspace", "replacement": "_", "add_prefix_space": True}
    for prefix, text in ((True, "_T_h"), (False, "T_h")):
        steps[0] = old | {"add_prefix_space": prefix}
        tokenizer = load(content)
        assert tokenizer.decode(tokenizer.encode("T h")) == text
        assert tokenizer.parts["pre_tokenizer"] == ("Metaspace", "ByteLevel")


def test_templates_act_only_where_they_are_asked_for(content, load, tmp_path) -> None:
    eot = content["added_tokens"][0]["id"]
    content["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
            {"type": "RobertaProcessing", "sep": ["</s>", eot], "cls": ["T", 51]},
        ],
    }
    tokenizer = load(content)
    assert tokenizer.encode("T") == BPE.encode("T") == [51]
    assert tokenizer.encode("T", add_special_tokens=True) == [51, 51, eot]
    assert tokenizer.encode("", add_special_tokens=True) == [51, eot]
    tokenizer.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert again == tokenizer
    assert again.encode("T", add_special_tokens=True) == [51, 51, eot]
    content["post_processor"]["processors"][1]["sep"][1] = eot + 1
    with pytest.raises(TokenizerError, match=f"puts in the id {eot + 1}, but the largest is {eot}"):
        load(content)


def test_facts_about_a_file(content, load) -> None:
    content["normalizer"] = {
        "type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]
    }  # fmt: skip
    tokenizer = load(content)
    assert tokenizer.parts == {
        "normalizer": ("NFC", "Lowercase"),
        "pre_tokenizer": ("Split", "ByteLevel"),
        "post_processor": (),
        "decoder": ("ByteLevel",),
    }
    assert (tokenizer.engine, tokenizer.fallback_reason) == ("mlxgpt", None)
    assert not tokenizer.byte_fallback
    assert not tokenizer.ignore_merges
    assert tokenizer.supports_dropout
    assert tokenizer != BPE
