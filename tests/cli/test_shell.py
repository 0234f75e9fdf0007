"""The command line's dealings with the shell: names to type, closed streams, Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import typer

from mlxgpt.cli.shell import command, given_text, import_heavy, interruptible, read_stdin
from mlxgpt.errors import DataError, MLXGPTWarning


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "some venv" / "bin" / "mlxgpt"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    return program


def test_a_printed_command_works_where_this_one_did(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(installed)])
    assert command("generate", "runs/a") == "'some venv/bin/mlxgpt' generate runs/a"
    monkeypatch.setenv("PATH", str(installed.parent))
    assert command("generate", Path("my $runs")) == "mlxgpt generate 'my $runs'"
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/pytest"])
    assert command("info") == "mlxgpt info"
    monkeypatch.setattr(sys, "argv", ["/site/mlxgpt/__main__.py"])
    assert command("info").endswith(" -m mlxgpt info")


def test_ctrl_c_ends_a_command_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    @interruptible
    def slow(number: int) -> int:
        if number:
            raise KeyboardInterrupt
        return 7

    assert slow(0) == 7
    with pytest.raises(typer.Exit) as caught:
        slow(1)
    assert caught.value.exit_code == 130
    assert capsys.readouterr().err == "\nmlxgpt: interrupted\n"


def test_our_warnings_are_notes_and_others_are_left_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: others.append(str(message)))
    before = warnings.showwarning, list(warnings.filters)

    @interruptible
    def talkative(fails: bool) -> None:
        for text in ("WordPiece goes\nthrough a library", "another", "another"):
            warnings.warn(text, MLXGPTWarning, stacklevel=1)
        with pytest.raises(DeprecationWarning):  # as the filters of these tests want it
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        warnings.simplefilter("always", DeprecationWarning)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        if fails:
            raise DataError("no")

    talkative(False)
    assert capsys.readouterr().err == "note: WordPiece goes through a library\nnote: another\n"
    with pytest.raises(DataError):
        talkative(True)  # each command tells it anew
    assert capsys.readouterr().err.count("note:") == 2
    assert others == ["old", "old"]
    assert (warnings.showwarning, list(warnings.filters)) == before


def test_closed_and_undecodable_input_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        read_stdin()


def run(*arguments: str, shell: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "mlxgpt", *arguments]
    script = " ".join(["exec", *(f"'{w}'" for w in words), shell])
    return subprocess.run(
        ["sh", "-c", script],
        env=os.environ | {"MLXGPT_BLAS": "off"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_streams_that_are_closed_or_of_another_encoding_are_no_traceback(tmp_path: Path) -> None:
    from mlxgpt.text import train_char

    folder = str(tmp_path / "tk")
    train_char(["añb"]).save(folder)
    assert run("tokenizer", "encode", folder, "ab", shell=">&-").returncode == 0
    closed = run("tokenizer", "encode", folder, shell="<&-")
    assert closed.returncode == 2
    assert closed.stderr.startswith("mlxgpt: error: standard input is closed")
    ascii_only = run("tokenizer", "decode", folder, "2", PYTHONIOENCODING="ascii")
    assert (ascii_only.returncode, ascii_only.stderr) == (0, "")
    assert ascii_only.stdout in ("?", "ñ")  # some libraries know better than the variable
    long = run("tokenizer", "decode", folder, "9" * 5000)
    assert (long.returncode, long.stderr.count("\n")) == (2, 1)


@pytest.mark.slow
def test_ctrl_c_at_any_early_moment_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one two three " * 2000)
    words = [sys.executable, "-m", "mlxgpt", "train", "--corpus", "words.txt", "--out", "run"]
    for delay in (0.15, 0.3, 0.5, 0.8):
        process = subprocess.Popen(
            words,
            cwd=tmp_path,
            env=os.environ | {"MLXGPT_BLAS": "off"},
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        assert process.returncode in (130, -signal.SIGINT)


def test_bytes_of_an_argument_that_are_no_text_are_refused() -> None:
    assert given_text("naïve") == "naïve"
    with pytest.raises(DataError, match="on the command line is not UTF-8"):
        given_text("\udcff\udcfe")  # what Python makes of the bytes FF FE


def test_ctrl_c_during_a_heavy_import_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "heavy_to_import.py"
    module.write_text("import signal\nsignal.raise_signal(signal.SIGINT)\ndone = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        import_heavy("heavy_to_import")
    assert sys.modules.pop("heavy_to_import").done
