"""`mlxgpt tokenizer show`: a text with the borders of its tokens, and how dropout moves them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlxgpt.cli.tokenizer import app
from mlxgpt.errors import ConfigError, TokenizerError
from mlxgpt.text import END_OF_TEXT, Tokenizer, train_bpe, train_char

TEXT = "hug pug bun, bat hugs " * 20


def run(*arguments: object, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
    result = CliRunner(env=env).invoke(app, ["show", *map(str, arguments)], input=stdin)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture(scope="module")
def hug(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hug")
    train_bpe([TEXT], 269, special_tokens=[END_OF_TEXT]).save(folder)
    return folder


def test_a_text_is_one_line_with_borders(hug: Path) -> None:
    assert run(hug, "hug bug\n") == "4 tokens  │hug│ b│ug│\\n│\n"
    assert run(hug, "-", stdin="hug") == run(hug, stdin="hug") == "1 token   │hug│\n"
    assert run(hug, "") == "0 tokens  \n"


def test_half_characters_are_spelled(hug: Path) -> None:
    assert run(hug, "é hug") == "3 tokens  │\\xc3│\\xa9│ hug│\n"


def test_ids_stand_below(hug: Path) -> None:
    ids = Tokenizer.load(hug).encode("hug bug")
    assert run(hug, "hug bug", "--ids").splitlines() == [
        "3 tokens  │hug│ b│ug│",
        "     ids  │" + "│".join(map(str, ids)) + "│",
    ]


def test_specials_act_only_when_allowed(hug: Path) -> None:
    assert run(hug, f"hug{END_OF_TEXT}", "--allow-special") == f"2 tokens  │hug│{END_OF_TEXT}│\n"
    assert END_OF_TEXT not in run(hug, f"hug{END_OF_TEXT}")


def test_dropout_shows_the_plain_encoding_and_then_the_samples(hug: Path) -> None:
    tokenizer = Tokenizer.load(hug)
    text = "hug pug hugs bun"
    printed = run(hug, text, "--dropout", 0.5, "--samples", 3, "--seed", 7).splitlines()
    assert [line.split("  ")[0].strip() for line in printed] == [
        "p=0",
        *(f"p=0.5 seed {seed}" for seed in (7, 8, 9)),
    ]
    assert len({line.index("│") for line in printed}) == 1, "the texts stand below each other"
    samples = [tokenizer.encode(text, dropout=0.5, seed=seed) for seed in (7, 8, 9)]
    for line, ids in zip(printed, [tokenizer.encode(text), *samples], strict=True):
        assert f" {len(ids)} token" in line
        shown = line[line.index("│") + 1 : -1].split("│")
        assert shown == [tokenizer.decode([i]) for i in ids]
    assert len(set(map(tuple, samples))) > 1
    assert len(run(hug, text, "--dropout", 0.5).splitlines()) == 1 + 5


def test_everything_dropped_are_the_bytes(hug: Path) -> None:
    printed = run(hug, "hug", "--dropout", 1, "--samples", 1)
    assert printed.splitlines()[1].endswith("3 tokens  │h│u│g│")


def test_a_terminal_gets_colours_in_place_of_borders(
    hug: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80", "COLORTERM": ""}
    coloured = run(hug, "hug bug", env=terminal)
    assert coloured == (
        "3 tokens  \x1b[30;48;5;117mhug\x1b[0m\x1b[30;48;5;222m b\x1b[0m"
        "\x1b[30;48;5;117mug\x1b[0m\n"
    )
    two = run(hug, END_OF_TEXT * 2, "--allow-special", env=terminal)
    assert f"\x1b[37;48;5;90m{END_OF_TEXT}\x1b[0m\x1b[37;48;5;18m{END_OF_TEXT}" in two
    for off in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert run(hug, "hug bug", env=terminal | off) == "3 tokens  │hug│ b│ug│\n"
    for option in ("--no-colour", "--no-color"):
        assert run(hug, "hug bug", option, env=terminal) == "3 tokens  │hug│ b│ug│\n"


def test_a_terminal_gets_lines_that_fit(hug: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    narrow = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "30"}
    printed = run(hug, "hug pug bun hugs", "--no-colour", env=narrow)
    assert printed.splitlines() == ["4 tokens  │hug│ pug│ bun│", "          │ hugs│"]
    assert run(hug, "hug pug bun hugs") == "4 tokens  │hug│ pug│ bun│ hugs│\n"


def test_a_tokenizer_without_dropout_is_refused(tmp_path: Path) -> None:
    train_char(["hug"]).save(tmp_path)
    assert run(tmp_path, "hug") == "3 tokens  │h│u│g│\n"
    with pytest.raises(TokenizerError, match="there are no merges to drop"):
        run(tmp_path, "hug", "--dropout", 0.1)


@pytest.mark.parametrize("p", ["1.5", "-0.1", "nan"])
def test_a_rate_that_is_none_is_refused(hug: Path, p: str) -> None:
    with pytest.raises(TokenizerError, match="between 0 and 1"):
        run(hug, "hug", f"--dropout={p}")


@pytest.mark.parametrize("option", ["--samples=3", "--seed=3"])
def test_no_option_is_taken_and_ignored(hug: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=r"has no meaning without --dropout"):
        run(hug, "hug", option)
