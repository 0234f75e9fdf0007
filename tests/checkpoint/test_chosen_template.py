"""Which chat template a fine-tuning gets: the base's own, a built-in one, a file, or none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from mlxgpt.checkpoint import Checkpoint, load_tokenizer, open_checkpoint, save_model
from mlxgpt.checkpoint.chosen_template import ChosenTemplate, chosen_template
from mlxgpt.errors import ConfigError, TokenizerError
from mlxgpt.text import END_OF_TEXT, Tokenizer, train_bpe
from mlxgpt.text.templates import BUILTIN_NAMES, builtin_template

OWN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
TURNS = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "say"}]
CHATML = ("<|im_start|>", "<|im_end|>")


@pytest.fixture
def base(tmp_path: Path, random_gpt: Callable[..., Any]) -> Callable[..., Path]:
    """Return a function that makes a base with some special tokens, and a template or none."""

    def make(*specials: str, template: str | None = None) -> Path:
        tokenizer = train_bpe(["ask and say"], 270, special_tokens=specials)
        folder = tmp_path / f"base{len(list(tmp_path.iterdir()))}"
        save_model(folder, random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
        if template is not None:
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        return folder

    return make


def chosen(folder: Path, name: str) -> ChosenTemplate:
    checkpoint = open_checkpoint(folder)
    return chosen_template(checkpoint, load_tokenizer(checkpoint), name)


def rendered(choice: ChosenTemplate) -> str:
    assert choice.template is not None
    return choice.template.render(TURNS)


def test_auto_is_the_own_template_of_the_base(base: Callable[..., Path]) -> None:
    folder = base(END_OF_TEXT, template=OWN)
    choice = chosen(folder, "auto")
    assert rendered(choice) == "user: ask\nassistant: say\n"
    assert (choice.name, choice.added, choice.notes) == ("the base's own", False, ())
    assert choice.template is not None
    assert str(folder) in choice.template.name, "messages name the base"


def test_a_base_without_one_gets_alpaca_and_a_note(base: Callable[..., Path]) -> None:
    folder = base(END_OF_TEXT)
    choice = chosen(folder, "auto")
    assert rendered(choice) == rendered(chosen(folder, "alpaca"))
    assert "say" + END_OF_TEXT in rendered(choice)
    assert (choice.name, choice.added) == ("alpaca", True)
    [note] = choice.notes
    assert str(folder) in note
    assert "--template" in note


def test_without_an_end_of_text_it_is_plain_with_a_note(base: Callable[..., Path]) -> None:
    choice = chosen(base("<|sep|>"), "auto")
    assert (choice.template, choice.name, choice.added) == (None, "plain", False)
    assert "no end of text" in choice.notes[0]


def test_plain_is_none_whatever_the_base_has(base: Callable[..., Path]) -> None:
    choice = chosen(base(END_OF_TEXT, template=OWN), "plain")
    assert (choice.template, choice.name, choice.added, choice.notes) == (None, "plain", False, ())


def test_a_builtin_one_goes_before_that_of_the_base(base: Callable[..., Path]) -> None:
    choice = chosen(base(END_OF_TEXT, *CHATML, template=OWN), "chatml")
    assert "<|im_start|>assistant\nsay<|im_end|>" in rendered(choice)
    assert (choice.name, choice.added, choice.notes) == ("chatml", True, ())


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("chatml", CHATML),
        ("llama3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
        ("gemma", ("<start_of_turn>", "<end_of_turn>")),
    ],
)
def test_control_tokens_must_be_in_the_vocabulary(
    base: Callable[..., Path], name: str, missing: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(base(END_OF_TEXT), name)
    message = str(caught.value)
    for word in (f"--template {name}", *missing, "--template alpaca"):
        assert word in message
    half = base(END_OF_TEXT, *missing[1:])
    with pytest.raises(ConfigError) as caught:
        chosen(half, name)
    assert missing[0] in str(caught.value)
    assert missing[-1] not in str(caught.value), "only what is missing is named"


def test_where_alpaca_lacks_its_token_too_the_remedy_is_plain(base: Callable[..., Path]) -> None:
    for name in ("alpaca", "zephyr", "mistral", "chatml"):
        with pytest.raises(ConfigError, match="--template plain") as caught:
            chosen(base("<|sep|>"), name)
        assert "--template alpaca needs no" not in str(caught.value)


def test_a_file_is_read_by_its_ending_or_because_it_is_there(
    base: Callable[..., Path], tmp_path: Path
) -> None:
    folder = base(END_OF_TEXT)
    for name in ("mine.jinja", "mine.txt"):
        file = tmp_path / name
        file.write_text(OWN, encoding="utf-8")
        choice = chosen(folder, str(file))
        assert rendered(choice) == "user: ask\nassistant: say\n"
        assert (choice.name, choice.added) == (str(file), True)
    with pytest.raises(TokenizerError, match=r"cannot read .*none\.jinja"):
        chosen(folder, str(tmp_path / "none.jinja"))
    with pytest.raises(TokenizerError, match="cannot read"):
        chosen(folder, str(tmp_path))
    (tmp_path / "bad.jinja").write_text("{% for %}", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"bad\.jinja .*line 1"):
        chosen(folder, str(tmp_path / "bad.jinja"))


def test_a_file_that_says_what_it_needs_is_held_to_it(
    base: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text(builtin_template("chatml"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"<\|im_start\|>, <\|im_end\|>"):
        chosen(base(END_OF_TEXT), str(file))
    assert "say<|im_end|>" in rendered(chosen(base(END_OF_TEXT, *CHATML), str(file)))


def test_a_name_goes_before_a_file_of_that_name(
    base: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = base(END_OF_TEXT)
    monkeypatch.chdir(tmp_path)
    for name in ("auto", "plain", "alpaca"):
        Path(name).write_text(OWN, encoding="utf-8")
        assert chosen(folder, name).name == name.replace("auto", "alpaca")
    assert "### Response:" in rendered(chosen(folder, "alpaca"))
    assert rendered(chosen(folder, "./alpaca")) == "user: ask\nassistant: say\n"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("chatlm", "did you mean 'chatml'?"),
        ("llama-3", "did you mean 'llama3'?"),
        ("none", f"known: {', '.join(sorted(('auto', 'plain', *BUILTIN_NAMES)))}"),
        ("", "known: "),
        ("templates/mine.txt", "known: "),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(
    base: Callable[..., Path], name: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(base(END_OF_TEXT), name)
    assert f"called '{name}'" in str(caught.value)
    assert hint in str(caught.value)


def test_a_broken_template_of_the_base_is_named(base: Callable[..., Path]) -> None:
    folder = base(END_OF_TEXT, template="{{ messages ")
    with pytest.raises(TokenizerError, match="the chat template of"):
        chosen(folder, "auto")
    assert chosen(folder, "plain").template is None, "what is not wanted is not read"


def test_only_auto_asks_the_base_for_its_template() -> None:
    class Base:
        path = Path("base")

        @property
        def chat_template(self) -> str:
            raise AssertionError("not asked for")

    tokenizer = Tokenizer.__new__(Tokenizer)
    assert chosen_template(cast(Checkpoint, Base()), tokenizer, "plain").template is None
