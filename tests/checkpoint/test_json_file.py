import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.checkpoint import read_json
from mlxgpt.errors import CheckpointError


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
