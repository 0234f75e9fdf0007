"""Which token ends a document, and how that is found and kept."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_files import added, byte_level, sentencepiece

from mlxgpt.errors import TokenizerError
from mlxgpt.text import END_OF_TEXT, Tokenizer


def write(folder: Path, content: dict[str, Any], config: Any = None) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def ending_with(*names: str) -> dict[str, Any]:
    content = byte_level()
    first = len(content["model"]["vocab"])
    content["added_tokens"] = [added(name, first + i) for i, name in enumerate(names)]
    return content


def end_of(tokenizer: Tokenizer) -> str | None:
    return {i: name for name, i in tokenizer.special_tokens.items()}.get(tokenizer.eot_id or -1)


@pytest.mark.parametrize(
    ("names", "config", "end"),
    [
        (["<s>", END_OF_TEXT, "</s>"], {"eos_token": "</s>"}, END_OF_TEXT),
        (["<s>", "<end>", "</s>"], {"eos_token": "<end>"}, "<end>"),
        (["<s>", "<end>"], {"eos_token": {"content": "<end>", "lstrip": False}}, "<end>"),
        (["<s>", "<end>", "</s>"], {"eos_token": None}, "</s>"),
        (["<s>", "</s>"], {"eos_token": "<unknown>"}, "</s>"),
        (["<s>", "<｜end▁of▁sentence｜>"], None, "<｜end▁of▁sentence｜>"),
        (["<s>", "<|end_of_text|>"], None, "<|end_of_text|>"),
        (["<s>", "<end>"], None, None),
    ],
)
def test_it_is_found_and_kept(tmp_path: Path, names, config, end) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, ending_with(*names), config))
    assert end_of(tokenizer) == end
    tokenizer.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert (again.eot_id, again.content_hash) == (tokenizer.eot_id, tokenizer.content_hash)


def test_it_is_part_of_what_a_tokenizer_is(tmp_path: Path) -> None:
    content = ending_with("<a>", "<b>")
    hashes = set()
    for name in ("<a>", "<b>", "<c>"):
        folder = tmp_path / name.strip("<>")
        folder.mkdir()
        hashes.add(Tokenizer.load(write(folder, content, {"eos_token": name})).content_hash)
    assert len(hashes) == 3


def test_a_single_file_that_would_lose_it_is_not_written(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, ending_with("<a>"), {"eos_token": "<a>"}))
    with pytest.raises(TokenizerError, match=r"only tokenizer_config\.json says that '<a>' ends"):
        tokenizer.save(tmp_path / "alone.json")
    usual = Tokenizer.load(write(tmp_path, ending_with("</s>"), {"eos_token": "</s>"}))
    usual.save(tmp_path / "alone.json")


def test_the_names_of_border_tokens_are_kept(tmp_path: Path) -> None:
    config = {"bos_token": "<a>", "eos_token": {"content": "<b>"}, "unk_token": "<c>", "x": 1}
    Tokenizer.load(write(tmp_path, ending_with("<a>", "<b>"), config)).save(tmp_path / "new")
    saved = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())
    kept = {name: saved.get(name) for name in ("bos_token", "eos_token", "unk_token")}
    assert kept == {"bos_token": "<a>", "eos_token": "<b>", "unk_token": "<c>"}


def test_without_a_config_the_template_tells_what_begins_a_text(tmp_path: Path) -> None:
    Tokenizer.load(write(tmp_path, sentencepiece())).save(tmp_path / "new")
    saved = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())
    assert (saved["bos_token"], saved["eos_token"]) == ("<s>", "</s>")


@pytest.mark.parametrize("config", [[], {"eos_token": 5}, {"eos_token": {"content": []}}])
def test_a_damaged_config_is_named(tmp_path: Path, config: Any) -> None:
    write(tmp_path, ending_with("</s>"), config)
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json"):
        Tokenizer.load(tmp_path)
