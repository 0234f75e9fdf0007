"""`mlxgpt data inspect`: a row as training sees it, in a terminal, in a pipe, and as JSON."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from data_runs import CHAT, END, START, hold, interrupted, make_base, refusal, run, write_rows

from mlxgpt.text import Tokenizer

TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80", "COLORTERM": ""}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("inspect") / "base")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(
        tmp_path / "rows.jsonl",
        {"messages": CHAT, "source": "us"},
        {"prompt": "ask ", "completion": "say so"},
        {"text": "what it is"},
        {"messages": [{"role": "user", "content": f"ask {END}\x1b[31m me\x9b2J"}, CHAT[1]]},
        {"messages": [{"role": "user", "content": "ask"}, {"role": "assistant", "content": ""}]},
    )


def head(printed: str) -> dict[str, str]:
    """Return the lines above the text: what -> in words."""
    lines = printed.split("\n\n")[0].splitlines()
    return {line[:10].strip(): line[11:] for line in lines}


def test_what_is_learned_stands_between_marks(base: Path, rows: Path) -> None:
    printed = run("inspect", rows, "--model", base, "--row", 1)
    table, text = head(printed), printed.split("\n\n", 1)[1].splitlines()
    assert table["row 1"] == f"{rows}:1, a conversation of 2 messages"
    assert table["template"] == "the base's own"
    assert table["ignored"] == "the field source"
    assert re.fullmatch(r"\d+, \d+ of them supervised \(between ⟦ and ⟧\)", table["tokens"])
    assert text == [
        f"{START}user\\n",
        f"ask me{END}\\n",
        f"{START}assistant\\n",
        "⟦say\\n⟧",
        f"⟦so{END}⟧",
    ]


def test_every_form_is_told(base: Path, rows: Path) -> None:
    for row, what in ((2, "a prompt with its completion"), (3, "a text"), (4, "a conversation")):
        assert what in head(run("inspect", rows, "--model", base, "--row", row))[f"row {row}"]
    text = head(run("inspect", rows, "--model", base, "--row", 3))
    assert text["template"] == "none: a text is learned as it is"
    printed = run("inspect", rows, "--model", base, "--row", 2, "--template", "plain")
    assert head(printed)["template"] == "plain"
    assert printed.splitlines()[-1] == "ask ⟦say so<|endoftext|>⟧"


def test_a_terminal_has_colours_and_no_color_turns_them_off(base: Path, rows: Path) -> None:
    arguments = ("inspect", rows, "--model", base, "--row", 1)
    coloured = run(*arguments, env=TERMINAL)
    assert "(in colour)" in coloured
    assert "⟦" not in coloured
    assert f"\x1b[30;48;5;117mso\x1b[0m\x1b[37;48;5;18m{END}\x1b[0m" in coloured
    plain = run(*arguments)
    assert run(*arguments, env=TERMINAL | {"NO_COLOR": "1"}) == plain
    assert run(*arguments, "--no-color", env=TERMINAL) == plain


def test_a_file_steers_no_terminal(base: Path, rows: Path) -> None:
    printed = run("inspect", rows, "--model", base, "--row", 4)
    assert f"ask \\{END}\\u001b[31m me\\u009b2J{END}\\n" in printed
    assert all(line.isprintable() for line in printed.splitlines())
    as_json = run("inspect", rows, "--model", base, "--row", 4, "--json")
    assert as_json.strip().isascii()
    assert as_json.strip().isprintable()
    evil = write_rows(rows.parent / "evil.jsonl", {"messages": [{"role": "\x1b[2J"}]}, {"\x9b": 1})
    for row in (1, 2):
        assert "evil.jsonl" in refusal("inspect", evil, "--model", base, "--row", row)


def test_an_unusable_row_is_shown_with_its_reason(base: Path, rows: Path) -> None:
    printed = run("inspect", rows, "--model", base, "--row", 5)
    assert head(printed)["left out"]
    assert '"role": "assistant", "content": ""' in "".join(printed.splitlines())
    evil = write_rows(rows.parent / "e.jsonl", {"prompt": "\x9b\n\x7f", "completion": ""})
    printed_evil = run("inspect", evil, "--model", base, "--row", 1)
    assert '{"prompt": "\\x9b\\n\\x7f", "completion": ""}' in printed_evil
    facts = json.loads(run("inspect", rows, "--model", base, "--row", 5, "--json"))
    assert facts["usable"] is False
    assert facts["reason"] == head(printed)["left out"]
    assert "supervised_tokens" not in facts


def test_a_cut_is_told_with_its_side(base: Path, rows: Path) -> None:
    whole = json.loads(run("inspect", rows, "--model", base, "--row", 3, "--json"))["tokens"]
    arguments = ("inspect", rows, "--model", base, "--row", 3, "--max-length", whole - 2)
    assert head(run(*arguments))["cut"].startswith("2 tokens at the end")
    printed = run(*arguments, "--overflow", "truncate-left")
    assert head(printed)["cut"].startswith("2 tokens at the beginning")
    assert "cut" not in head(run("inspect", rows, "--model", base, "--row", 3))
    assert str(whole) in head(run(*arguments, "--overflow", "drop"))["left out"]


def test_the_settings_of_the_loss_count(base: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "two.jsonl", {"messages": [*CHAT, *CHAT]})

    def learned(*more: object) -> list[str]:
        facts = json.loads(run("inspect", rows, "--model", base, "--json", *more))
        return [part["text"] for part in facts["text"] if part["supervised"]]

    assert learned() == ["say\nso", END] * 2
    assert learned("--turns", "last") == ["say\nso", END]
    assert "".join(learned("--no-mask-prompt")).startswith("user\nask me")


def test_ids_stand_below_and_in_json(base: Path, rows: Path) -> None:
    facts = json.loads(run("inspect", rows, "--model", base, "--row", 1, "--json", "--ids"))
    tokenizer = Tokenizer.load(base)
    assert tokenizer.decode(facts["ids"]) == "".join(part["text"] for part in facts["text"])
    assert (len(facts["ids"]), sum(facts["supervised"])) == (
        facts["tokens"],
        facts["supervised_tokens"],
    )
    assert (facts["file"], facts["line"], facts["row"]) == (str(rows), 1, 1)
    assert (facts["form"], facts["ignored_fields"]) == ("conversation", ["source"])
    printed = run("inspect", rows, "--model", base, "--row", 1, "--ids").split("\n\n")[2]
    assert re.sub("[⟦⟧]", "", printed).split() == list(map(str, facts["ids"]))
    inside = " ".join(re.findall("⟦([^⟧]*)⟧", printed)).split()
    learned = zip(facts["ids"], facts["supervised"], strict=True)
    assert inside == [str(i) for i, flag in learned if flag]
    assert "ids" not in json.loads(run("inspect", rows, "--model", base, "--row", 1, "--json"))


def test_without_a_row_it_is_the_first_and_the_whole_file(base: Path, rows: Path) -> None:
    printed = run("inspect", rows, "--model", base)
    one = run("inspect", rows, "--model", base, "--row", 1)
    assert printed.startswith(one)
    report = printed.removeprefix(one)
    hold("5 in rows.jsonl: 4 used", "dropped    1: ", "(line 5)", "supervised", within=report)
    facts = json.loads(run("inspect", rows, "--model", base, "--json"))["report"]
    assert (facts["rows"], facts["used"], facts["held_back"]) == (5, 4, 0)
    assert "report" not in json.loads(run("inspect", rows, "--model", base, "--row", 1, "--json"))


def test_rows_are_counted_apart_from_lines(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "gaps.jsonl"
    file.write_text('\n\n{"text": "ask"}\n\n{"text": "say"}\n', encoding="utf-8")
    assert head(run("inspect", file, "--model", base, "--row", 2))["row 2"] == f"{file}:5, a text"
    message = refusal("inspect", file, "--model", base, "--row", 3)
    assert message == f"{file} has 2 rows, so there is no row 3"


def test_a_folder_stands_for_its_train_file(base: Path, rows: Path) -> None:
    rows.rename(rows.parent / "train.jsonl")
    write_rows(rows.parent / "valid.jsonl", {"text": "ask"})
    printed = run("inspect", rows.parent, "--model", base, "--row", 1)
    assert f"{rows.parent / 'train.jsonl'}:1" in head(printed)["row 1"]
    assert "rows       5 in train.jsonl" in run("inspect", rows.parent, "--model", base)


def test_a_base_without_a_template_has_alpaca_and_a_note(rows: Path, tmp_path: Path) -> None:
    other = make_base(tmp_path / "other", template=False)
    table = head(run("inspect", rows, "--model", other, "--row", 1))
    assert table["template"] == "alpaca"
    assert "has no chat template" in table["note"]


def test_mistakes_are_one_line(base: Path, rows: Path, tmp_path: Path) -> None:
    def refuse(*arguments: object, file: object = rows, model: object = base) -> str:
        return refusal("inspect", file, "--model", model, *arguments)

    hold("none.jsonl", within=refuse(file=tmp_path / "none.jsonl"))
    (tmp_path / "empty").mkdir()
    hold("train.jsonl", within=refuse(file=tmp_path / "empty"))
    hold("nowhere", within=refuse(model=tmp_path / "nowhere"))
    hold("chatml", "did you mean", within=refuse("--template", "chatlm"))
    hold("<start_of_turn>", "alpaca", within=refuse("--template", "gemma"))
    hold("overflow", "truncate-left", within=refuse("--overflow", "left"))
    hold("--max-length", "257", "256", within=refuse("--max-length", 257))
    hold("max_length", "at least 2", within=refuse("--max-length", 1))
    hold("turns", within=refuse("--turns", "last", "--no-mask-prompt"))
    hold("--json", within=refuse("--json", "--no-colour"))
    hold("--row", within=refuse("--row", 0))
    hold("--model", within=refusal("inspect", rows))
    hold("rows.jsonl:1", "--template", within=refuse("--template", "plain", "--row", 1))
    odd = write_rows(tmp_path / "odd.jsonl", {"text": "ask"}, {"unknown": 1})
    hold("odd.jsonl:2", "unknown", within=refuse("--row", 2, file=odd))
    hold("odd.jsonl:2", within=refuse(file=odd))
    assert head(run("inspect", odd, "--model", base, "--row", 1))["row 1"]


def test_ctrl_c_is_one_line(base: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch, "inspect", rows, "--model", base)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, mlxgpt.cli.data as d\n"
        "for name in ([], ['inspect'], ['histogram']):\n"
        "    try: d.app([*name, '--help'])\n"
        "    except SystemExit as e: assert e.code == 0\n"
        "heavy = {'mlx.core', 'numpy', 'matplotlib', 'jinja2', 'mlxgpt.text'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    ran: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    hold("inspect", "histogram", "--row", "--pack-mode", within=ran.stdout)
