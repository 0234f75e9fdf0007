import json
import os
import struct
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.checkpoint.safetensors import TensorInfo, read_header, read_tensors, write_tensors
from mlxgpt.errors import CheckpointError


def raw(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(shape: Any, begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


GOOD = raw(
    {"__metadata__": {"format": "mlx"}, "a": entry([2, 3], 0, 24), "b": entry([2], 24, 32)},
    np.arange(8, dtype=np.float32).tobytes(),
)


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_tensors(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(GOOD)
    assert read_header(file) == {"a": TensorInfo("F32", (2, 3)), "b": TensorInfo("F32", (2,))}
    tensors = read_tensors(file)
    assert np.array(tensors["a"]).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.array(tensors["b"]).tolist() == [6, 7]


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    for length in range(len(GOOD)):
        file.write_bytes(GOOD[:length])
        refused(file)
    file.write_bytes(GOOD + b"\0")
    assert "trailing" in refused(file)


HEADERS: dict[str, tuple[Any, bytes]] = {
    "no JSON": (b"{oops", b""),
    "no object": ([1, 2], b""),
    "an entry that is no object": ({"a": 5}, b""),
    "an entry without offsets": ({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "three offsets": ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]}}, bytes(4)),
    "a gap": ({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)),
    "an overlap": ({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, bytes(8)),
    "twice the same bytes": ({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, bytes(4)),
    "a start beyond 0": ({"a": entry([1], 4, 8)}, bytes(8)),
    "a wrong shape": ({"a": entry([3], 0, 8)}, bytes(8)),
    "a negative size": ({"a": entry([-1], 0, -4)}, b""),
    "two negative sizes": ({"a": entry([-1, -1], 0, 4)}, bytes(4)),
    "an end before the start": ({"a": entry([0], 4, 0)}, bytes(4)),
    "a shape of text": ({"a": entry("1", 0, 4)}, bytes(4)),
    "a shape that is an object": ({"a": entry({}, 0, 4)}, bytes(4)),
    "a fraction": ({"a": entry([1.0], 0, 4)}, bytes(4)),
    "true as a size": ({"a": entry([True], 0, 4)}, bytes(4)),
    "null offsets": ({"a": entry([1], None, None)}, bytes(4)),
    "2**31 rows of nothing": ({"a": entry([2**31, 0], 0, 0)}, b""),
    "2**40 columns of nothing": ({"a": entry([0, 2**40], 0, 0)}, b""),
    "an offset of many digits": ({"a": entry([0], 10**30, 10**30)}, b""),
    "a number of too many digits": (b'{"a": ' + b"9" * 5000 + b"}", b""),
    "an unknown dtype": ({"a": entry([4], 0, 4, "F8_E4M3")}, bytes(4)),
    "a dtype that is a list": ({"a": entry([1], 0, 4, ["F32"])}, bytes(4)),
    "a dtype that MLX cannot add": ({"a": entry([4], 0, 4, "BOOL")}, bytes(4)),
    "metadata of numbers": ({"__metadata__": {"x": 5}, "a": entry([1], 0, 4)}, bytes(4)),
    "metadata that is no object": ({"__metadata__": 5, "a": entry([1], 0, 4)}, bytes(4)),
    "NaN in the header": ({"a": {**entry([1], 0, 4), "x": float("nan")}}, bytes(4)),
    "UTF-16": (json.dumps({"a": entry([1], 0, 4)}).encode("utf-16"), bytes(4)),
    "deep nesting": (b"[" * 100_000, b""),
    "a name over two lines": ({"a\nb": entry([3], 0, 8)}, bytes(8)),
    "half a character as a name": ({"\ud800": entry([3], 0, 8)}, bytes(8)),
}


@pytest.mark.parametrize(("header", "data"), HEADERS.values(), ids=HEADERS)
def test_a_header_that_lies_is_refused(header: Any, data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(raw(header, data))
    refused(file)


def test_a_header_longer_than_the_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    for length in (len(GOOD), 2**40, 2**63, 2**64 - 1):
        file.write_bytes(struct.pack("<Q", length) + GOOD[8:])
        assert "cut off" in refused(file)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    assert "missing" in refused(tmp_path / "x.safetensors")
    (tmp_path / "d.safetensors").mkdir()
    assert "cannot be read" in refused(tmp_path / "d.safetensors")


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 33), st.integers(0, 255)), min_size=1))
def test_flipped_header_bytes_give_an_error_or_sound_tensors(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(GOOD)
    for place, value in flips[:4]:
        content[place] = value
    file = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    file.write_bytes(bytes(content))
    try:
        outcome = read_tensors(file)
    except CheckpointError as e:
        outcome = str(e)
    if isinstance(outcome, str):
        assert "\n" not in outcome
    else:
        assert sum(t.nbytes for t in outcome.values()) == 32


def test_bfloat16_comes_back_bit_for_bit(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    values = mx.array([1e38, -1e38, 1e-38, -0.0, 70000.0, 1 / 3, 0.0]).astype(mx.bfloat16)
    half = mx.array([65504.0, -0.0, 6e-8]).astype(mx.float16)
    single = mx.array([3e38, -0.0, 1e-45])
    write_tensors(file, {"bf16": values, "f16": half, "f32": single, "n": mx.array(3)})
    read = read_tensors(file)
    assert (read["bf16"].dtype, read["f16"].dtype) == (mx.bfloat16, mx.float16)
    assert mx.array_equal(read["bf16"].view(mx.uint16), values.view(mx.uint16))
    assert mx.array_equal(read["f16"].view(mx.uint16), half.view(mx.uint16))
    assert mx.array_equal(read["f32"].view(mx.uint32), single.view(mx.uint32))
    assert read["n"].item() == 3
    assert read["bf16"][4].item() == 70144.0


def test_what_was_read_does_not_hang_on_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    numbers = mx.random.normal((300, 300), key=mx.random.key(0))
    write_tensors(file, {"a": numbers})
    read = read_tensors(file)
    file.write_bytes(bytes(file.stat().st_size))
    assert mx.array_equal(read["a"], numbers)


def test_a_file_may_be_overwritten_with_what_was_read_from_it(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    key = mx.random.key(0)
    first = {n: mx.random.normal((300, 300), key=key + i) for i, n in enumerate("abc")}
    write_tensors(file, first)
    lazy = mx.load(str(file))  # as MLX reads it: nothing is in memory yet
    assert isinstance(lazy, dict)
    write_tensors(file, {**lazy, "b": lazy["b"] + 1})
    again = read_tensors(file)
    assert mx.array_equal(again["a"], first["a"])
    assert mx.array_equal(again["b"], first["b"] + 1)
    assert mx.array_equal(again["c"], first["c"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
def test_a_full_disk_is_an_error_of_the_writer(tmp_path: Path) -> None:
    os.symlink("/dev/full", tmp_path / "x.safetensors")
    with pytest.raises(RuntimeError):
        write_tensors(tmp_path / "x.safetensors", {"a": mx.ones((10, 10))})
