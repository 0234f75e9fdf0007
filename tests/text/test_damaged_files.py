"""Damaged tokenizer.json files: one line that names the file and the entry, never a traceback."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from small_files import (
    BYTES_AT_THE_END,
    added,
    byte_level,
    sentencepiece,
    split,
    unigram,
    wordpiece,
)

from mlxgpt.errors import TokenizerError
from mlxgpt.text import Tokenizer, train_bpe

hf = pytest.importorskip("tokenizers")

Change = Callable[[dict[str, Any]], Any]
BYTE_LEVEL = byte_level()
EOT = BYTE_LEVEL["added_tokens"][0]["id"]


def put(*path: Any, to: Any) -> Change:
    def change(content: dict[str, Any]) -> None:
        *parents, last = path
        for key in parents:
            content = content[key]
        content[last] = to

    return change


def move_all_ids(content: dict[str, Any]) -> None:
    for token in content["model"]["vocab"]:
        content["model"]["vocab"][token] += 5
    content["added_tokens"][0]["id"] += 5


STEPS = ("pre_tokenizer", "pretokenizers")
DAMAGED: dict[str, Change] = {
    "it has no 'model'": lambda content: content.pop("model"),
    "the entry 'comment' is unknown": put("comment", to="mine"),
    'version must be "1.0", got 2': put("version", to=2),
    "padding must be an object or null, got 5": put("padding", to=5),
    "model.vocab must be an object": put("model", "vocab", to=[]),
    "model.merges must be a list": put("model", "merges", to=None),
    "model.dropout 0.1 would make the ids random": put("model", "dropout", to=0.1),
    "model.dropout must be a number or null": put("model", "dropout", to="0"),
    "model.ignore_merges must be true or false, got 'no'": put("model", "ignore_merges", to="no"),
    "model.unk_token must be a text, got 5": put("model", "unk_token", to=5),
    "normalizer must be an object, got 'NFC'": put("normalizer", to="NFC"),
    "normalizer has no 'type'": put("normalizer", to={}),
    "normalizer.prepend must be a text, got 1": put(
        "normalizer", to={"type": "Prepend", "prepend": 1}
    ),
    r"normalizer.normalizers\[0\] must be an object, got None": put(
        "normalizer", to={"type": "Sequence", "normalizers": [None]}
    ),
    "pre_tokenizer.pretokenizers must be a list": put(*STEPS, to=5),
    r"pretokenizers\[0\].behavior must be one of Removed, .* got 'None'": put(
        *STEPS, 0, "behavior", to="None"
    ),
    r"pre_tokenizer.pretokenizers\[0\] has no 'invert'": lambda c: (
        c["pre_tokenizer"]["pretokenizers"][0].pop("invert")
    ),
    r"pretokenizers\[0\].pattern must be .*'Glob'": put(*STEPS, 0, "pattern", to={"Glob": 1}),
    r"pretokenizers\[1\].add_prefix_space must be true or false": put(
        *STEPS, 1, "add_prefix_space", to=None
    ),
    "add_prefix_space false contradicts prepend_scheme 'first'": put(
        *STEPS, 0,
        to={"type": "Metaspace", "replacement": "_", "add_prefix_space": False,
            "prepend_scheme": "first"},
    ),
    "replacement must be one character": put(
        *STEPS, 0, to={"type": "Metaspace", "replacement": "__"}
    ),
    r"decoder.decoders\[0\].start must be a whole number": put(
        "decoder", to={"type": "Sequence", "decoders": [
            {"type": "Strip", "content": " ", "start": -1, "stop": 0}]},
    ),
    r"post_processor.single\[0\].SpecialToken names '<s>', not one of": put(
        "post_processor",
        to={"type": "TemplateProcessing", "pair": [], "special_tokens": {},
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]},
    ),
    r"post_processor.sep must be \[token, id\]": put(
        "post_processor", to={"type": "BertProcessing", "sep": 5, "cls": ["a", 1]}
    ),
    "added_tokens must be a list": put("added_tokens", to={}),
    f"the ids have a hole: {EOT + 1} is missing": lambda c: c["model"]["vocab"].update(zq=5000),
    "the ids have a hole: 0 is missing": move_all_ids,
    "id 5 belongs to '&' and to 'zq'": lambda c: c["model"]["vocab"].update(zq=5),
    "the id of 'zq' is '7', no whole number": lambda c: c["model"]["vocab"].update(zq="7"),
    "the id of 'zq' is True, no whole number": lambda c: c["model"]["vocab"].update(zq=True),
    "the id of 'zq' is -1, no whole number": lambda c: c["model"]["vocab"].update(zq=-1),
    rf"the token 'a b' \(id {EOT}\) is not written": lambda c: (
        c["model"]["vocab"].update({"a b": EOT}) or c["added_tokens"].clear()
    ),
    "id 7 belongs to .* and to '<x>'": put("added_tokens", 0, to=added("<x>", 7)),
    f"gives 'T' the id {EOT}, model.vocab 51": put("added_tokens", 0, "content", to="T"),
    "put them in the order of their ids": lambda c: c["added_tokens"].insert(
        0, added("<x>", EOT + 1)
    ),
    r"added_tokens\[0\]: the content must be a text, got ''": put(
        "added_tokens", 0, "content", to=""
    ),
    r"added_tokens\[0\]: the content must be a text, got .*ud83d": put(
        "added_tokens", 0, "content", to="\ud83d"
    ),
    r"added_tokens\[0\]: the id must be": put("added_tokens", 0, "id", to=None),
    r"added_tokens\[0\]: 'lstrip' must be true": put("added_tokens", 0, "lstrip", to="no"),
    r"added_tokens\[0\] must be an object": put("added_tokens", 0, to="<s>"),
    r"added_tokens\[1\]: '<\|endoftext\|>' stands twice": lambda c: c["added_tokens"].append(
        {**c["added_tokens"][0], "id": EOT + 1}
    ),
    rf"added_tokens\[1\]: id {EOT} is that of": lambda c: c["added_tokens"].append(
        {**c["added_tokens"][0], "content": "<x>"}
    ),
    "stands twice": lambda c: c["model"]["merges"].append(c["model"]["merges"][0]),
    r"merges\[1\] cannot be divided .*: 'T h e'": put("model", "merges", 1, to="T h e"),
    r"merges\[1\] is no pair of tokens: 'The'": put("model", "merges", 1, to="The"),
    r"merges\[1\] is no pair of tokens: 'T '": put("model", "merges", 1, to="T "),
    r"merges\[1\] is neither a pair .*\['T'\]": put("model", "merges", 1, to=["T"]),
    r"merges\[1\] is neither .*'h', 'e'": put("model", "merges", 1, to=["T", "h", "e"]),
    r"merges\[1\] is neither .*5": put("model", "merges", 1, to=["T", 5]),
    r"merges\[1\] is neither .*: 7": put("model", "merges", 1, to=7),
    r"merges\[1\] .*needs the token 'zzz', which": put("model", "merges", 1, to=["T", "zzz"]),
    r"merges\[1\] .*needs the token 'qq', which": put("model", "merges", 1, to="q q"),
}  # fmt: skip


@pytest.mark.parametrize("message", DAMAGED)
def test_what_is_damaged_is_named_with_the_file(tmp_path: Path, message: str) -> None:
    content = copy.deepcopy(BYTE_LEVEL)
    DAMAGED[message](content)
    file = tmp_path / "foreign.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(TokenizerError, match=message) as caught:
        Tokenizer.load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"model": {"vocab": {"a": 0', "is not complete JSON: .* in line 1, column 28"),
        (b"", "is not complete JSON"),
        (b'{"model": "\xff"}', "is not UTF-8 .at byte 11"),
        (b"[1, 2]", "it has no 'model'"),
        (b'"text"', "it has no 'model'"),
        (b'{"model": {}}', "model.type None"),
        (b'{"model": {"vocab": {"a": 0, "a": 1}}}', "'a' stands twice in one object"),
        (b'{"model": {"type": "BPE", "vocab": {"a": 1e999}, "merges": []}}', "no whole number"),
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


def _rich() -> dict[str, Any]:
    """A small file with many components."""
    content = json.loads(json.dumps(BYTE_LEVEL))
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    content["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}
        ],
    }  # fmt: skip
    content["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            split(r"\p{P}", "MergedWithPrevious"),
            BYTES_AT_THE_END | {"add_prefix_space": True},
        ],
    }
    return content


VALUES = [None, True, 0, -1, 10**12, 0.5, "", "x", "Isolated", "\ud83d", [], ["a"], {}, "a b c"]
TEXTS = ["", "hug, 12 café \x01", "<|endoftext|> the<s>  a", "HUG's"]


def mutations(content: Any, path: tuple[Any, ...] = ()) -> Iterator[Change]:
    """Yield changes of each node: other values, gone, doubled; of long lists only some entries."""
    if path:
        *parents, last = path

        def parent_of(whole: Any) -> Any:
            for key in parents:
                whole = whole[key]
            return whole

        yield from (put(*path, to=value) for value in VALUES)
        yield lambda whole: parent_of(whole).pop(last)
        if isinstance(last, int):
            yield lambda whole: parent_of(whole).append(copy.deepcopy(parent_of(whole)[last]))
    entries = list(content.items() if isinstance(content, dict) else enumerate(content))
    if len(entries) > 12:
        entries = [entries[0], entries[len(entries) // 2], entries[-1]]
    for key, value in entries:
        inside = value if isinstance(value, dict | list) else ()
        yield from mutations(inside, (*path, key))


FILES = [BYTE_LEVEL, _rich(), sentencepiece(), wordpiece(), unigram()]


def loaded_or_refused(file: Path) -> Tokenizer | None:
    """The tokenizer, or None after one line that names the file."""
    message = ""
    try:
        return Tokenizer.load(file)
    except TokenizerError as e:
        message = str(e)
    assert "\n" not in message
    assert str(file) in message
    return None


def asked(question: Callable[..., Any], *arguments: Any) -> Any:
    """The library's answer, or None where it refuses or panics (which is no Exception)."""
    try:
        return question(*arguments)
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt | SystemExit):
            raise
        return None


@pytest.mark.slow
@pytest.mark.parametrize("content", FILES, ids=["bytes", "rich", "llama", "wordpiece", "unigram"])
@pytest.mark.filterwarnings("ignore::mlxgpt.errors.MLXGPTWarning")
def test_any_change_of_a_file_is_refused_or_means_what_it_means_to_the_library(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    file = tmp_path / "tokenizer.json"
    loaded = 0
    for change in mutations(content):
        changed = copy.deepcopy(content)
        change(changed)
        file.write_text(json.dumps(changed))
        ours = loaded_or_refused(file)
        if ours is None:
            continue
        theirs = asked(hf.Tokenizer.from_file, str(file))
        if theirs is None:
            continue  # flags of added tokens may be missing here
        theirs.no_truncation()
        theirs.no_padding()
        loaded += 1
        for text in TEXTS:
            encoding = asked(theirs.encode, text)
            ids = []
            with suppress(TokenizerError) if encoding is None else nullcontext():
                ids = ours.encode(text, "all", add_special_tokens=True)
            assert encoding is None or ids == encoding.ids
            with suppress(TokenizerError) if ours.engine == "tokenizers" else nullcontext():
                stream = ours.stream_decoder()
                streamed = "".join([*map(stream.push, ids), stream.finish()])
                assert streamed == ours.decode(ids)
    assert loaded > 20


def test_a_pattern_that_others_read_differently_is_not_trained_with() -> None:
    with pytest.raises(TokenizerError, match="means something else in other programs"):
        train_bpe(["a b"], 260, pattern=r"^\w+|\s")
