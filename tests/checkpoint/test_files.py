import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.checkpoint import read_json, write_atomic, write_json, write_text
from mlxgpt.checkpoint.files import share_file
from mlxgpt.errors import CheckpointError


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def half(path: Path) -> None:
        path.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_atomic(file, half)
    assert file.read_text() == "old"
    assert [f.name for f in tmp_path.iterdir()] == ["a.txt"]


def test_what_is_renamed_has_reached_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    write_json(tmp_path / "a.json", {"ä": [1]})
    assert order == ["fsync", "replace", "fsync"]  # the file, its name, the folder
    assert read_json(tmp_path / "a.json") == {"ä": [1]}


def test_a_shared_file_is_the_same_one_or_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("new")
    target.write_text("old")
    share_file(source, target)
    assert os.path.samefile(source, target)
    share_file(source, target)  # a rename between two names of one file would leave a third
    assert {f.name for f in tmp_path.iterdir()} == {"s", "t"}
    target.unlink()

    def refuse(*_: object) -> None:
        raise OSError(95, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    share_file(source, target)
    assert not os.path.samefile(source, target)
    assert target.read_text() == "new"


def test_a_leftover_link_is_not_written_through(tmp_path: Path) -> None:
    """A killed process with this process's number left a second name of a file in use."""
    in_use, source = tmp_path / "in-use", tmp_path / "source"
    in_use.write_text("precious")
    source.write_text("new")
    os.link(in_use, tmp_path / f"tmp-{os.getpid()}-target")
    share_file(source, tmp_path / "target")
    assert in_use.read_text() == "precious"
    assert os.path.samefile(source, tmp_path / "target")


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_json(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "object, got list"),
        (b"null", "object, got NoneType"),
        (b'{"a": \xff}', "JSON"),
        (b"[" * 100_000, "JSON"),
        (b'{"a": ' * 50_000, "JSON"),
        (b"1" * 5000, "JSON"),
        (b'{"a": 1}}', "JSON"),
        (b"\x00\x01", "JSON"),
    ],
)
def test_what_is_no_json_object_is_named(content: bytes, part: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert part in refused(tmp_path / "a.json")


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert "missing" in refused(tmp_path / "none.json")
    assert "cannot be read" in refused(tmp_path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.data())
def test_any_damage_is_an_error_or_another_object(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any], data: st.DataObject
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.json"
    content = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    try:
        outcome = read_json(file)
    except CheckpointError as e:
        outcome = str(e)
    assert isinstance(outcome, dict) or "\n" not in outcome
