"""Beside the weights, an export keeps the chat template and the ids that end a text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlxgpt.checkpoint import (
    About,
    export_directory,
    export_gguf,
    open_checkpoint,
    outgoing,
    save_model,
    write_json,
)
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer, train_bpe

TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"


@pytest.fixture
def source(tmp_path: Path, random_gpt: Callable[..., GPT]) -> Path:
    """A chat model whose texts end with two ids, one of them in generation_config.json alone."""
    tokenizer = train_bpe(["the cat sat on the mat\n" * 9], 270)
    folder = tmp_path / "source"
    save_model(folder, random_gpt(n_embd=64, vocab_size=tokenizer.vocab_size), tokenizer)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    write_json(folder / "generation_config.json", {"eos_token_id": [tokenizer.eot_id, 5]})
    return folder


def kept(path: Path) -> tuple[str | None, frozenset[int]]:
    checkpoint = open_checkpoint(path)
    return checkpoint.chat_template, checkpoint.stop_ids


def test_template_and_ends_go_from_one_form_to_the_other_and_back(
    source: Path, tmp_path: Path
) -> None:
    about, eot = About(title="tiny"), Tokenizer.load(source).eot_id
    expected = (TEMPLATE, frozenset({eot, 5}))
    assert kept(source) == expected
    first = open_checkpoint(source)
    export_gguf(first, tmp_path / "a.gguf", outgoing(first, unpacked=True), about)
    assert kept(tmp_path / "a.gguf") == expected
    second = open_checkpoint(tmp_path / "a.gguf")
    export_directory(second, tmp_path / "b", outgoing(second), about)
    assert kept(tmp_path / "b") == expected
    export_directory(first, tmp_path / "c", outgoing(first), about)
    assert kept(tmp_path / "c") == expected


def test_a_template_inside_of_the_tokenizers_settings_is_kept_too(
    source: Path, tmp_path: Path
) -> None:
    (source / "chat_template.jinja").unlink()
    write_json(source / "tokenizer_config.json", {"chat_template": TEMPLATE})
    checkpoint = open_checkpoint(source)
    export_directory(checkpoint, tmp_path / "b", outgoing(checkpoint), About(title="tiny"))
    assert kept(tmp_path / "b")[0] == TEMPLATE
