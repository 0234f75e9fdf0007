"""Where a chat template stands, and generation settings that may be anything."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlxgpt.checkpoint import open_checkpoint, save_model
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT
from mlxgpt.text import train_char


@pytest.fixture
def saved(tmp_path: Path, random_gpt: Callable[..., GPT]) -> Path:
    tokenizer = train_char(["abcdefghij"])
    save_model(tmp_path, random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    return tmp_path


def put(directory: Path, template: Any) -> None:
    file = directory / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))


def test_a_model_without_one_has_none(saved: Path) -> None:
    assert open_checkpoint(saved).chat_template is None
    (saved / "tokenizer_config.json").unlink()
    assert open_checkpoint(saved).chat_template is None


TOOLS = {"name": "tool_use", "template": "{{ tools }}"}
DEFAULT = {"name": "default", "template": "{{ messages }} ü"}


@pytest.mark.parametrize(
    ("stored", "template"),
    [
        ("{{ messages }} ü", "{{ messages }} ü"),
        ([TOOLS, DEFAULT], "{{ messages }} ü"),
        ([DEFAULT], "{{ messages }} ü"),
        ([TOOLS], None),
        ([], None),
        (None, None),
        ("", None),
    ],
    ids=str,
)
def test_the_tokenizer_config_holds_one_or_several(
    stored: Any, template: str | None, saved: Path
) -> None:
    put(saved, stored)
    assert open_checkpoint(saved).chat_template == template


def test_a_file_of_its_own_goes_before(saved: Path) -> None:
    put(saved, "old")
    (saved / "chat_template.jinja").write_text("new ü\n", encoding="utf-8")
    assert open_checkpoint(saved).chat_template == "new ü\n"


@pytest.mark.parametrize(
    "stored", [5, {"a": 1}, True, [5], ["x"], [{"name": "default"}], [DEFAULT | {"template": 3}]]
)
def test_what_is_no_template_is_refused(stored: Any, saved: Path) -> None:
    put(saved, stored)
    with pytest.raises(CheckpointError, match="chat_template") as caught:
        _ = open_checkpoint(saved).chat_template
    assert "\n" not in str(caught.value)


def test_a_template_that_is_not_text_is_refused(saved: Path) -> None:
    (saved / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja cannot be read"):
        _ = open_checkpoint(saved).chat_template


@pytest.mark.parametrize("text", ["null", "{}", '{"eos_token_id": null}', " null\n"])
def test_generation_settings_may_say_nothing(text: str, saved: Path) -> None:
    before = open_checkpoint(saved).stop_ids
    assert before
    (saved / "generation_config.json").write_text(text)
    assert open_checkpoint(saved).stop_ids == before
