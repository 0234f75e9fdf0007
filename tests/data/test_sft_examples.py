"""Rows -> examples: cuts, drops, what is held back, and a report that adds up to the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlxgpt.data.sft.config import SFTDataConfig
from mlxgpt.data.sft.encoder import RowEncoder, Unusable
from mlxgpt.data.sft.example import Example
from mlxgpt.data.sft.example_set import load_sets
from mlxgpt.data.sft.forms import Completion, Conversation, Form, Passage
from mlxgpt.errors import DataError
from mlxgpt.text import Tokenizer, train_bpe
from mlxgpt.text.chat_template import ChatTemplate
from mlxgpt.text.templates import builtin_template

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe(["abc abd one two three four five"] * 4, 270)


def encoder(
    tokenizer: Tokenizer, length: int = 1000, template: bool = False, **changes: Any
) -> RowEncoder:
    config = SFTDataConfig(train="x", **changes)
    source = builtin_template("alpaca")
    chosen = ChatTemplate(source, tokenizer.border_names()) if template else None
    return RowEncoder(tokenizer, chosen, config, length)


def learned(tokenizer: Tokenizer, found: Example | Unusable) -> str:
    assert isinstance(found, Example), found
    return tokenizer.decode(found.ids[found.supervised].tolist())


def asked(*said: str) -> Conversation:
    roles = ("user", "assistant")
    return Conversation([{"role": roles[i % 2], "content": s} for i, s in enumerate(said)])


def test_each_form_is_learned_as_it_should_be(tokenizer: Tokenizer) -> None:
    plain, chat = encoder(tokenizer), encoder(tokenizer, template=True)
    assert learned(tokenizer, plain.encode(Completion("one", " two"))) == f" two{END}"
    assert learned(tokenizer, chat.encode(Completion("one", "two"))) == f"two{END}"
    assert learned(tokenizer, plain.encode(Completion("", "two"))) == f"two{END}"
    text = learned(tokenizer, plain.encode(Passage("abc abd one")))
    assert f"abc abd one{END}".endswith(text)
    assert len(text) > 8
    both = chat.encode(asked("one", "two", "three", "four"))
    assert learned(tokenizer, both) == f"two{END}four{END}"
    last = encoder(tokenizer, template=True, turns="last").encode(asked("one", "two", "x", "four"))
    assert learned(tokenizer, last) == f"four{END}"
    with pytest.raises(DataError, match="needs a chat template"):
        plain.encode(asked("one", "two"))


def test_turns_with_no_weight_are_not_learned(tokenizer: Tokenizer) -> None:
    said = asked("one", "two", "three", "four")
    form = Conversation(said.messages, None, frozenset({1}))
    assert learned(tokenizer, encoder(tokenizer, template=True).encode(form)) == f"four{END}"


def test_without_a_mask_all_but_the_first_is_learned(tokenizer: Tokenizer) -> None:
    found = encoder(tokenizer, mask_prompt=False).encode(Completion("one two", " three"))
    assert isinstance(found, Example)
    assert found.supervised.tolist() == [False] + [True] * (found.length - 1)


def test_what_follows_the_last_answer_is_left_out(tokenizer: Tokenizer) -> None:
    chat = encoder(tokenizer, template=True)
    whole, more = (chat.encode(asked(*s)) for s in (("one", "two"), ("one", "two", "three")))
    assert isinstance(whole, Example)
    assert isinstance(more, Example)
    assert whole.ids.tolist() == more.ids.tolist()


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (Completion("one", ""), "its answer is empty"),
        (Passage(""), "its text is empty"),
        (Conversation([]), "no answer in it"),
        (asked("one"), "no answer in it"),
        (asked("one", ""), "its answer is empty"),
    ],
)
def test_rows_that_teach_nothing_say_why(tokenizer: Tokenizer, form: Form, reason: str) -> None:
    assert encoder(tokenizer, template=True).encode(form) == Unusable(reason)


@pytest.mark.parametrize("length", [2, 3, 5, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("overflow", ["drop", "truncate-left", "truncate-right"])
def test_a_cut_keeps_what_is_asked_for(tokenizer: Tokenizer, length: int, overflow: str) -> None:
    form = Completion("abc abd one", " two three four five")
    whole = encoder(tokenizer).encode(form)
    assert isinstance(whole, Example)
    cut = encoder(tokenizer, length, overflow=overflow)
    found, before = cut.encode_counted(form)
    assert before == whole.length
    if whole.length <= length:
        assert isinstance(found, Example)
        assert found.ids.tolist() == whole.ids.tolist()
        return
    if overflow == "drop":
        assert found == Unusable("longer than --max-length")
        return
    part = slice(None, length) if overflow == "truncate-right" else slice(-length, None)
    ids, supervised = whole.ids[part], whole.supervised[part].copy()
    supervised[0] = False
    if not supervised.any():
        assert isinstance(found, Unusable)
        return
    assert isinstance(found, Example)
    assert found.ids.tolist() == ids.tolist()
    assert found.supervised.tolist() == supervised.tolist()


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


ROWS = [{"prompt": f"{'one ' * (i % 5)}", "completion": "two " * (i % 4)} for i in range(40)]


@pytest.mark.parametrize("fraction", [None, 0, 0.2, 0.9])
def test_the_report_adds_up(tokenizer: Tokenizer, tmp_path: Path, fraction: float | None) -> None:
    config = SFTDataConfig(train=str(write(tmp_path / "r.jsonl", ROWS)), val_fraction=fraction)
    train, valid = load_sets(config, RowEncoder(tokenizer, None, config, 8), 3)
    facts = train.report.facts()
    assert facts["rows"] == 40
    assert facts["used"] + facts["held_back"] + sum(facts["dropped"].values()) == 40
    assert facts["used"] == len(train)
    assert facts["held_back"] == {None: 2, 0: 0, 0.2: 8, 0.9: 36}[fraction]
    assert (valid is None) == (fraction == 0)
    assert facts["tokens"] == sum(e.length for e in train.examples)
    assert facts["supervised_tokens"] == sum(e.num_supervised for e in train.examples)
    encode = RowEncoder(tokenizer, None, config, 1000).encode
    all_tokens = 0
    for _, line in train.sources:
        row = ROWS[line - 1]
        whole = encode(Completion(row["prompt"], row["completion"]))
        assert isinstance(whole, Example)
        all_tokens += whole.length
    assert facts["tokens"] + facts["cut_tokens"] == all_tokens
    assert any("dropped" in line and "empty" in line for line in train.report.lines())


def test_the_split_follows_the_seed_and_nothing_else(tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = SFTDataConfig(train=str(write(tmp_path / "r.jsonl", ROWS)), val_fraction=0.3)

    def lines(seed: int) -> list[int]:
        _, valid = load_sets(config, RowEncoder(tokenizer, None, config, 50), seed)
        assert valid is not None
        return [line for _, line in valid.sources]

    assert lines(1) == lines(1)
    assert lines(1) != lines(2)


def test_few_rows_are_all_trained_on(tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = SFTDataConfig(train=str(write(tmp_path / "r.jsonl", ROWS[1:4])))
    train, valid = load_sets(config, RowEncoder(tokenizer, None, config, 50), 0)
    assert (len(train), valid) == (3, None)


def test_a_folder_brings_its_own_validation(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", ROWS)
    write(tmp_path / "valid.jsonl", ROWS[1:3])
    config = SFTDataConfig(train=str(tmp_path))
    train, valid = load_sets(config, RowEncoder(tokenizer, None, config, 50), 0)
    assert valid is not None
    assert (len(train), len(valid)) == (30, 2)
    assert train.report.also_validated == 4  # every row stands in it twice
    both = SFTDataConfig(train=str(tmp_path), val_fraction=0.1)
    with pytest.raises(DataError, match=r"valid\.jsonl is there to validate on"):
        load_sets(both, RowEncoder(tokenizer, None, both, 50), 0)


def test_nothing_to_train_on_says_why(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", [{"prompt": "a", "completion": ""}] * 3)
    config = SFTDataConfig(train=str(file))
    with pytest.raises(DataError, match=r"no row to train on; of 3 rows 3: its answer is empty"):
        load_sets(config, RowEncoder(tokenizer, None, config, 50), 0)


def test_dropout_draws_anew_and_validation_has_none(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", [{"prompt": "one", "completion": " three four five"}] * 12)
    config = SFTDataConfig(train=str(file), bpe_dropout=0.4, val_fraction=0.2)
    train, valid = load_sets(config, RowEncoder(tokenizer, None, config, 1000), 0)
    assert valid is not None
    plain = train.examples[0]
    drawn = [train.drawn(0, draw) for draw in range(6)]
    assert len({tuple(e.ids) for e in drawn}) > 3
    assert np.array_equal(train.drawn(0, 2).ids, drawn[2].ids)
    for one in drawn:
        assert learned(tokenizer, one) == learned(tokenizer, plain)
    assert valid.drawn(0, 1).ids.tolist() == valid.examples[0].ids.tolist()
    short = load_sets(config, RowEncoder(tokenizer, None, config, plain.length), 0)[0]
    assert all(short.drawn(0, d).length <= plain.length for d in range(6))


def test_the_fingerprint_names_ids_and_masks(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def name(rows: list[dict[str, Any]], **changes: Any) -> str:
        config = SFTDataConfig(train=str(write(tmp_path / "f.jsonl", rows)), **changes)
        return load_sets(config, RowEncoder(tokenizer, None, config, 50), 0)[0].fingerprint

    same = name(ROWS)
    assert name(ROWS) == same
    assert name(ROWS[::-1]) != same
    assert name(ROWS, mask_prompt=False) != same
    assert name(ROWS, bpe_dropout=0.1) != same
