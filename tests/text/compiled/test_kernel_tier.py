"""When kernels are used, where their machine code is kept, and that a bad disk breaks nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.text.compiled import code_cache, tier

WARM_UP = """
from mlxgpt.text.compiled.tier import cache_is_warm, warm_up, worthwhile
import sys
print(worthwhile(1 << 20), "numba" in sys.modules)
warm_up(lambda line: print(line))
print(worthwhile(1 << 20), cache_is_warm())
import numba
print(repr(numba.config.CACHE_DIR))
"""
NOTICE = "compiling the tokenizer kernels, once on this machine (about 6 s)"


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let nothing be loaded or compiled, and the cache be empty."""
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path))
    monkeypatch.delenv(tier.VARIABLE, raising=False)
    monkeypatch.setattr(tier, "_ready", set())
    monkeypatch.setattr(tier, "_use", lambda _: None)
    return tmp_path


def run(cache: Path, *, wait: bool = True) -> "subprocess.Popen[str]":
    environment = os.environ | {"MLXGPT_CACHE": str(cache)}
    environment.pop(tier.VARIABLE, None)
    command = [sys.executable, "-W", "error", "-c", WARM_UP]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    if wait:
        process.wait()
    return process


def output(process: "subprocess.Popen[str]") -> list[str]:
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    return lines


def test_small_work_is_left_to_the_plain_tier(cold: Path) -> None:
    assert [tier.worthwhile(n) for n in (0, 3 << 20, 4 << 20)] == [False, False, True]
    code_cache.mark_code("encoding")
    assert tier.cache_is_warm()
    assert not tier.cache_is_warm("training")
    assert [tier.worthwhile(n) for n in (0, 400_000, 600_000)] == [False, False, True]
    assert not tier.worthwhile(600_000, "training")
    tier.warm_up()
    assert [tier.worthwhile(n) for n in (100, 5000)] == [False, True]


def test_a_notice_is_given_once_on_a_machine(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tier.warm_up(said.append)
    tier.warm_up(said.append)
    monkeypatch.setattr(tier, "_ready", set())
    tier.warm_up(said.append)
    assert said == [NOTICE]
    tier.warm_up(said.append, "training")
    assert len(said) == 2


def test_the_variable_switches_the_kernels_off(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier.warm_up()
    monkeypatch.setenv(tier.VARIABLE, "off")
    assert not tier.compiled_available()
    assert not tier.worthwhile(1 << 30)
    for value in ("auto", ""):
        monkeypatch.setenv(tier.VARIABLE, value)
        assert tier.compiled_available()
        assert tier.worthwhile(1 << 30)
    monkeypatch.setenv(tier.VARIABLE, "on")
    for ask in (tier.compiled_available, lambda: tier.worthwhile(1)):
        with pytest.raises(ConfigError, match="MLXGPT_KERNELS must be 'auto' or 'off', got 'on'"):
            ask()


def test_without_numba_the_plain_tier_serves(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    tier._has_numba.cache_clear()
    assert not tier.compiled_available()
    assert not tier.worthwhile(1 << 30)
    tier._has_numba.cache_clear()


def test_code_belongs_to_one_version_and_one_processor(
    cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code_cache.mark_code("encoding")
    assert code_cache.has_code("encoding")
    with monkeypatch.context() as other:
        other.setattr(code_cache, "_processor", lambda: "another")
        assert not code_cache.has_code("encoding")
    with monkeypatch.context() as other:
        other.setattr(code_cache, "_digest", lambda: "newer")
        assert not code_cache.has_code("encoding")


def test_old_versions_are_dropped(cold: Path) -> None:
    for age, name in enumerate("abcdefg"):
        (cold / "kernels" / name).mkdir(parents=True)
        os.utime(cold / "kernels" / name, (10**9 - age, 10**9 - age))
    (cold / "kernels" / "new").mkdir()
    code_cache.mark_code("encoding")
    left = {folder.name for folder in (cold / "kernels").iterdir()}
    assert left == {"new", "a", "b", code_cache.code_folder().name}


def test_a_folder_that_cannot_be_made_is_no_error(
    cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cold / "file").write_text("")
    monkeypatch.setenv("MLXGPT_CACHE", str(cold / "file"))
    tier.warm_up()
    assert not tier.cache_is_warm()
    assert tier.worthwhile(1 << 20)


@pytest.mark.slow
def test_processes_share_what_one_of_them_compiled(tmp_path: Path) -> None:
    both = [run(tmp_path, wait=False) for _ in range(2)]
    for process in both:
        assert output(process) == ["False False", NOTICE, "True True", "''"]
    code = sorted(tmp_path.rglob("*.nbc"))
    assert {file.name.split("-")[0] for file in code} == {
        "encode_kernel.encode_words",
        "split_kernel.split_words",
    }
    assert output(run(tmp_path)) == ["True True", "True True", "''"]
    assert sorted(tmp_path.rglob("*.nbc")) == code

    for file in code:  # damaged: compiled anew
        file.write_bytes(b"no machine code")
    assert output(run(tmp_path)) == ["True True", "True True", "''"]


@pytest.mark.slow
def test_a_disk_that_refuses_everything_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lines = output(run(tmp_path / "file"))
    assert lines == ["False False", NOTICE, "True False", "''"]


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_waits_for_the_compiler_once(monkeypatch: pytest.MonkeyPatch, presses: int) -> None:
    done: list[str] = []

    def compile_slowly(purpose: str) -> None:
        for _ in range(presses):
            signal.raise_signal(signal.SIGINT)
        done.append(purpose)

    monkeypatch.setattr(tier, "_ready", set())
    monkeypatch.setattr(tier, "_use", compile_slowly)
    monkeypatch.setattr(tier, "mark_code", done.append)
    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        tier.warm_up()
    assert done == ["encoding", "encoding"] * (presses == 1)
    assert signal.getsignal(signal.SIGINT) is usual
