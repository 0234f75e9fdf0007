"""tokenizer.json files of others: read exactly as meant, or refused with the component's name."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlxgpt.errors import TokenizerError
from mlxgpt.text import PATTERNS, Tokenizer, train_bpe, train_char
from mlxgpt.text.vocabulary import read_merges

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
    from mlxgpt.text.byte_alphabet import BYTE_ORDER, to_characters

    return [to_characters(bytes([byte])) for byte in BYTE_ORDER]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("T h e", r"merges\[1\] cannot be divided into two tokens: 'T h e'"),
        ("The", r"merges\[1\] cannot be divided"),
        ("T ", r"merges\[1\] cannot be divided"),
        (["T"], r"merges\[1\] is neither a pair of tokens nor a text"),
        (["T", "h", "e"], r"merges\[1\] is neither"),
        (["T", 5], r"merges\[1\] is neither"),
        (7, r"merges\[1\] is neither"),
        (["T", "zzz"], r"merges\[1\] .*needs the token 'zzz', which model.vocab lacks"),
        ("q q", r"merges\[1\] .*needs the token 'qq', which model.vocab lacks"),
    ],
)
def test_a_merge_that_is_not_clear_is_refused_by_its_number(content, load, entry, message) -> None:
    content["model"]["merges"][1] = entry
    with pytest.raises(TokenizerError, match=message):
        load(content)


def test_a_part_with_a_space_is_found_through_the_vocabulary() -> None:
    vocab = {token: i for i, token in enumerate(["a b", "c", "a bc", "a", "b c", "ab c"])}
    assert read_merges([["a b", "c"]], vocab) == [(0, 1)]
    with pytest.raises(TokenizerError, match=r"merges\[0\] cannot be divided"):
        read_merges(["a b c"], vocab)  # could be (a b, c) or (a, b c)
    del vocab["b c"]
    assert read_merges(["a b c"], vocab) == [(0, 1)]


def test_a_merge_that_stands_twice_is_refused(content, load) -> None:
    content["model"]["merges"].append(content["model"]["merges"][0])
    with pytest.raises(TokenizerError, match="stands twice"):
        load(content)


def test_gpt2s_form_is_read(content, load) -> None:
    content["model"].pop("type")
    content["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False}
    content["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True}
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
        "type": "ByteLevel", "add_prefix_space": False, "use_regex": False
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
    assert tokenizer.encode("T  T<t>  T") == [*T, n, *T, n + 1, *T]
    assert 0 not in tokenizer.encode("<s>")
    assert tokenizer.encode("<s>", allowed_special="all") == [0]
    assert tokenizer.decode([n + 1, 0, n]) == "<t><s>  "
    assert tokenizer.decode([n + 1, 0, n], skip_special=True) == "<t>  "
    assert tokenizer.token_byte_lengths[[0, n, n + 1]].tolist() == [0, 2, 3]
    tokenizer.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again") == tokenizer


def _set(*path: Any, to: Any) -> Change:
    def change(content: dict[str, Any]) -> None:
        *parents, last = path
        for key in parents:
            content = content[key]
        content[last] = to

    return change


def _move_all_ids(content: dict[str, Any]) -> None:
    for token in content["model"]["vocab"]:
        content["model"]["vocab"][token] += 5
    content["added_tokens"][0]["id"] += 5


STEPS = ("pre_tokenizer", "pretokenizers")
UNSUPPORTED: dict[str, Change] = {
    "normalizer 'NFC' is not supported": _set("normalizer", to={"type": "NFC"}),
    "normalizer 'Prepend' is not": _set("normalizer", to={"type": "Prepend", "prepend": "_"}),
    "normalizer 'Sequence' is not": _set("normalizer", to={"type": "Sequence", "normalizers": []}),
    "pre_tokenizer 'Digits' is not": _set(*STEPS, 0, to={"type": "Digits"}),
    "pre_tokenizer 'Metaspace' is not": _set("pre_tokenizer", to={"type": "Metaspace"}),
    "pre_tokenizer None is not": _set("pre_tokenizer", to=None),
    "pre_tokenizer 'Split' is not": _set(*STEPS, 1, to={"type": "Split"}),
    "'Removed' and invert False is not": _set(*STEPS, 0, "behavior", to="Removed"),
    "'Isolated' and invert True is not": _set(*STEPS, 0, "invert", to=True),
    "Split has no pattern that can be read": _set(*STEPS, 0, "pattern", to={"Glob": "*"}),
    "neither one of gpt2.* nor a regular expression": _set(
        *STEPS, 0, "pattern", to={"Regex": "(?P<a"}
    ),
    "ByteLevel with add_prefix_space": _set(*STEPS, 1, "add_prefix_space", to=True),
    "post_processor 'TemplateProcessing' is not": _set(
        "post_processor", to={"type": "TemplateProcessing"}
    ),
    "decoder 'Metaspace' is not": _set("decoder", to={"type": "Metaspace"}),
    "model.type 'Unigram' is not supported": _set("model", "type", to="Unigram"),
    "model.continuing_subword_prefix '##'": _set("model", "continuing_subword_prefix", to="##"),
    "model.end_of_word_suffix '</w>'": _set("model", "end_of_word_suffix", to="</w>"),
    "model.dropout 0.1 would make the ids random": _set("model", "dropout", to=0.1),
    "model.ignore_merges must be true or false, got 'no'": _set("model", "ignore_merges", to="no"),
    "byte_fallback together with merges": _set("model", "byte_fallback", to=True),
}
DAMAGED: dict[str, Change] = {
    "it has no 'model'": lambda content: content.pop("model"),
    "model.vocab must be an object": _set("model", "vocab", to=[]),
    "model.merges must be a list": _set("model", "merges", to=None),
    "added_tokens must be a list": _set("added_tokens", to={}),
    "the ids have a hole: 280 is missing": lambda c: c["model"]["vocab"].update({"zq": 5000}),
    "the ids have a hole: 0 is missing": _move_all_ids,
    "id 5 belongs to '&' and to 'zq'": lambda c: c["model"]["vocab"].update({"zq": 5}),
    "the id of 'zq' is '7', no whole number": lambda c: c["model"]["vocab"].update({"zq": "7"}),
    "the id of 'zq' is True, no whole number": lambda c: c["model"]["vocab"].update({"zq": True}),
    "the id of 'zq' is -1, no whole number": lambda c: c["model"]["vocab"].update({"zq": -1}),
    "the token 'a b' .id 280. is not written": lambda c: c["model"]["vocab"].update({"a b": 280}),
    "id 7 belongs to .* and to '<x>'": _set("added_tokens", 0, to={"id": 7, "content": "<x>"}),
    "gives 'T' the id 279, model.vocab 51": _set("added_tokens", 0, "content", to="T"),
    r"added_tokens\[0\]: the content must be a text": _set("added_tokens", 0, "content", to=""),
    r"added_tokens\[0\]: the content must": _set("added_tokens", 0, "content", to="\ud83d"),
    r"added_tokens\[0\]: the id must be": _set("added_tokens", 0, "id", to=None),
    r"added_tokens\[0\]: 'lstrip' must be true": _set("added_tokens", 0, "lstrip", to="no"),
    r"added_tokens\[0\] must be an object": _set("added_tokens", 0, to="<s>"),
    r"added_tokens\[1\]: '<\|endoftext\|>' stands twice": lambda c: c["added_tokens"].append(
        {**c["added_tokens"][0], "id": 280}
    ),
    r"added_tokens\[1\]: id 279 is that of": lambda c: c["added_tokens"].append(
        {**c["added_tokens"][0], "content": "<x>"}
    ),
}


@pytest.mark.parametrize("message", [*UNSUPPORTED, *DAMAGED])
def test_what_is_not_understood_is_named_with_the_file(content, load, message: str) -> None:
    change = {**UNSUPPORTED, **DAMAGED}[message]
    change(content)
    with pytest.raises(TokenizerError, match=message) as caught:
        load(content)
    assert "foreign.json: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_vocabulary_without_some_byte_is_refused(content, load) -> None:
    vocab = content["model"]["vocab"]
    vocab["Āx"] = vocab.pop("Ā")
    with pytest.raises(TokenizerError, match="lacks 1 of the 256 bytes, first 0x00"):
        load(content)


def test_a_character_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    CHAR.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    original = json.loads(file.read_text())
    changes: dict[str, Change] = {
        "decoder None": _set("decoder", to=None),
        "pre_tokenizer 'Metaspace'": _set("pre_tokenizer", to={"type": "Metaspace"}),
        "unk_token together with": _set("model", "unk_token", to="<0x00>"),
        "must be its characters and then": lambda c: (
            c["model"]["vocab"].update(a=3, b=0) or c["model"]["vocab"].update({"<0x00>": 1})
        ),
        "'abc' is not a character": lambda c: c["model"]["vocab"].update(
            {"abc": c["model"]["vocab"].pop("b")}
        ),
    }
    for message, change in changes.items():
        content = copy.deepcopy(original)
        change(content)
        file.write_text(json.dumps(content))
        with pytest.raises(TokenizerError, match=message):
            Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"model": {"vocab": {"a": 0', "is not complete JSON: .* in line 1, column 28"),
        (b"", "is not complete JSON"),
        (b'{"model": "\xff"}', "is not UTF-8 .at byte 11"),
        (b"[1, 2]", "it has no 'model'"),
        (b'"text"', "it has no 'model'"),
        (b'{"model": {}}', "model.type None is not supported"),
        (b"[" * 100_000, "no tokenizer file|not complete JSON"),
    ],
)
def test_a_file_that_is_no_tokenizer_gets_one_clear_line(
    tmp_path: Path, data: bytes, message: str
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(TokenizerError, match=message) as caught:
        Tokenizer.load(tmp_path)
    assert "tokenizer.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_or_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"holds no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    with pytest.raises(TokenizerError, match=r"there is no tokenizer file .*nowhere"):
        Tokenizer.load(tmp_path / "nowhere")
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(TokenizerError, match="cannot read"):
        Tokenizer.load(tmp_path)
