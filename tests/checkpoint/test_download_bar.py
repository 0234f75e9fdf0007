"""The line that shows a download, and how Ctrl-C reaches the threads that do it."""

import io
import logging
import signal
import sys
import threading

import pytest

from mlxgpt.checkpoint import download_bar as module
from mlxgpt.checkpoint.download_bar import download_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the bars that huggingface_hub makes, and return what came on standard error."""
    monkeypatch.setattr(module, "_SECONDS", 0)
    monkeypatch.setattr(sys, "stderr", terminal)
    with download_bar("owner/name") as bar:
        first = bar(desc="Downloading bytes", total=0, unit="B", unit_scale=True)
        second = bar(desc="Reconstructing", total=0, unit="B", unit_scale=True)
        files = bar(desc="Fetching 6 files", total=6)
        second.total = 2_000_000
        for one in (first, second, files):
            one.update(1_000_000)
        second.set_description("Reconstruction complete")
        second.refresh()
    return terminal.getvalue()


def test_a_terminal_shows_one_line_of_bytes_and_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(Terminal(), monkeypatch)
    assert "downloading owner/name  50 % |" in text
    assert "1.00MB of 2.00MB" in text
    assert "construct" not in text
    assert "6 files" not in text
    assert "\n" not in text
    assert text.split("\r")[-2].strip() == ""  # overwritten by blanks


def test_without_a_terminal_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch) == ""


def test_ctrl_c_reaches_the_threads() -> None:
    before = signal.getsignal(signal.SIGINT)
    ended: list[BaseException] = []
    go_on = threading.Event()

    def work(bar: object) -> None:
        assert go_on.wait(10)
        try:
            bar.update(1)  # type: ignore[attr-defined]
        except BaseException as e:
            ended.append(e)

    with pytest.raises(KeyboardInterrupt), download_bar("owner/name") as make:
        bar = make(unit="B")
        bar.update(1)
        thread = threading.Thread(target=work, args=(bar,))
        thread.start()
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            go_on.set()
            thread.join()
    assert len(ended) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_the_library_writes_no_warnings_into_the_line() -> None:
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    with download_bar("owner/name"):
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.level == before


def test_it_works_in_a_thread_which_has_no_say_in_signals() -> None:
    done: list[bool] = []

    def work() -> None:
        with download_bar("owner/name") as make:
            make(unit="B").update(1)
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
