"""The header of a GGUF file: what the gguf package writes is read back, damage is refused."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, GGUFValueType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_gguf import model_metadata, model_tensors, write_gguf

from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.checkpoint.gguf.block_types import BLOCK_TYPES
from mlxgpt.checkpoint.gguf.header import read_gguf_header
from mlxgpt.errors import CheckpointError, MLXGPTError

V = GGUFValueType
INTS = {
    V.UINT8: (0, 2**8 - 1), V.INT8: (-(2**7), 2**7 - 1), V.UINT16: (0, 2**16 - 1),
    V.INT16: (-(2**15), 2**15 - 1), V.UINT32: (0, 2**32 - 1), V.INT32: (-(2**31), 2**31 - 1),
    V.UINT64: (0, 2**64 - 1), V.INT64: (-(2**63), 2**63 - 1),
}  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBER = st.floats(allow_nan=False, width=32)


def one_of(kind: GGUFValueType) -> st.SearchStrategy[tuple[Any, GGUFValueType]]:
    return st.tuples(st.integers(*INTS[kind]), st.just(kind))


VALUES = st.one_of(
    st.sampled_from(list(INTS)).flatmap(one_of),
    st.tuples(NUMBER, st.just(V.FLOAT32)),
    st.tuples(st.floats(allow_nan=False), st.just(V.FLOAT64)),
    st.tuples(st.booleans(), st.just(V.BOOL)),
    st.tuples(TEXT, st.just(V.STRING)),
    *(
        st.tuples(st.lists(element, min_size=1, max_size=9), st.just(V.ARRAY))
        for element in (TEXT, NUMBER, st.booleans(), st.integers(*INTS[V.INT32]))
    ),
)
KEYS = st.text("abc._é", min_size=1, max_size=9).filter(lambda k: not k.startswith("general."))
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("headers")


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(KEYS, VALUES, max_size=8),
    st.dictionaries(KEYS, SHAPES, max_size=5),
    st.sampled_from([None, 8, 32, 256]),
)
def test_what_is_written_is_read_back(
    folder: Path, metadata: dict[str, Any], shapes: dict[str, list[int]], alignment: int | None
) -> None:
    random = np.random.default_rng(0)
    tensors = {name: random.normal(size=shape) for name, shape in shapes.items()}
    path = write_gguf(folder / "law.gguf", metadata, tensors, alignment=alignment)
    header = read_gguf_header(path)
    expected = {"general.architecture": "llama"} | {k: v for k, (v, _) in metadata.items()}
    if alignment is not None:
        expected["general.alignment"] = alignment
    assert header.metadata == expected
    assert list(header.tensors) == list(tensors)
    data = path.read_bytes()
    for name, place in header.tensors.items():
        assert (place.dtype, place.shape) == ("F32", tensors[name].shape)
        numbers = np.frombuffer(data[place.offset : place.offset + place.nbytes], "<f4")
        assert np.array_equal(numbers.reshape(place.shape), tensors[name].astype("f4"))


def test_all_types_of_tensors_have_their_sizes() -> None:
    known = {int(t): (t.name, *GGML_QUANT_SIZES[t]) for t in GGMLQuantizationType}
    assert known == BLOCK_TYPES


@pytest.mark.parametrize("surplus", range(-9, 10))
def test_a_header_longer_than_one_piece_is_read_on(surplus: int, tmp_path: Path) -> None:
    tokens = ["x" * 100] * 9708  # 8 + 100 bytes each: near 2**20 in all
    path = tmp_path / "large.gguf"
    metadata = {"pad": "p" * (60 + surplus), "tokens": tokens, "after": 7}
    write_gguf(path, metadata, {"a": np.ones((3, 2))})
    assert 2**20 - 400 < read_gguf_header(path).tensors["a"].offset < 2**20 + 400
    assert read_gguf_header(path).metadata["tokens"] == tokens
    assert read_gguf_header(path).metadata["after"] == 7


# Damage


def small_file(folder: Path) -> Path:
    """A whole model of one layer, with a tokenizer."""
    tokenizer = {
        "model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab", "<|x|>"], "merges": ["a b"],
        "token_type": ([1, 1, 1, 3], V.ARRAY), "eos_token_id": 3, "add_bos_token": False,
    }  # fmt: skip
    metadata = model_metadata(block_count=1)
    metadata |= {f"tokenizer.ggml.{k}": v for k, v in tokenizer.items()}
    return write_gguf(folder / "small.gguf", metadata, model_tensors(layers=1))


def is_opened(path: Path) -> bool:
    """Read all of a file that may be damaged; False if it was refused in one line."""
    file = GGUFFile(path)
    try:
        for _ in file.weights():
            pass
        _ = file.stop_ids, file.chat_template, file.tensors(), file.quantization
        file.tokenizer()
    except MLXGPTError as e:
        message = str(e)
    else:
        return True
    assert str(path) in message
    assert "\n" not in message
    return False


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore::mlxgpt.errors.MLXGPTWarning")
def test_no_flipped_byte_of_a_header_does_harm(tmp_path: Path) -> None:
    path = small_file(tmp_path)
    whole = path.read_bytes()
    end = min(place.offset for place in read_gguf_header(path).tensors.values())
    assert is_opened(path)
    damaged, refused = tmp_path / "damaged.gguf", 0
    for at in range(end):
        for mask in (0x80, 0xFF):
            data = bytearray(whole)
            data[at] ^= mask
            damaged.write_bytes(data)
            refused += not is_opened(damaged)
    # The rest are texts and numbers that are read as what they are now, and padding.
    assert 1.5 * end < refused < 2 * end


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_cut_is_refused(tmp_path: Path) -> None:
    path = small_file(tmp_path)
    whole = path.read_bytes()
    end = min(place.offset for place in read_gguf_header(path).tensors.values())
    cut = tmp_path / "cut.gguf"
    for length in [*range(end), *range(end, len(whole), 997), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"cut\.gguf"):
            read_gguf_header(cut)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, sizes: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


def raw(entries: tuple[bytes, ...] = (), tensors: tuple[bytes, ...] = (), **head: Any) -> bytes:
    version, counts = head.get("version", 3), head.get("counts", (len(tensors), len(entries)))
    start = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join((*entries, *tensors))
    return start + bytes(-len(start) % 32) + bytes(head.get("data", 64))


HUGE = struct.pack("<Q", 2**63)
DAMAGE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "does not begin with 'GGUF'"),
    "another format": (b"PK\3\4" + bytes(60), "does not begin with 'GGUF'"),
    "version 1": (raw(version=1), "version 1 is not supported"),
    "big-endian": (raw(version=3 << 24), "version 3, big-endian is not supported"),
    "a billion tensors": (raw(counts=(10**9, 0)), "count 1000000000 tensors"),
    "a billion entries": (raw(counts=(0, 10**9)), "count 1000000000 metadata"),
    "a key twice": (raw((entry("k", 0, b"1"), entry("k", 0, b"1"))), "'k' stands twice"),
    "a tensor twice": (raw((), (tensor("t"), tensor("t"))), "'t' stands twice"),
    "overlap": (raw((), (tensor("t", (9,)), tensor("u", (8,), offset=32))), "'u' overlaps 't'"),
    "behind the end": (raw((), (tensor("t", (17,)),)), "'t' ends at byte"),
    "far behind the end": (raw((), (tensor("t", offset=2**63),)), "'t' ends at byte"),
    "not aligned": (raw((), (tensor("t", offset=8),)), "begins at 8, no multiple"),
    "odd alignment": (
        raw((entry("general.alignment", 4, struct.pack("<I", 12)),)), "'general.alignment' must be"
    ),
    "no alignment": (raw((entry("general.alignment", 4, bytes(4)),)), "must be a multiple of 8"),
    "unknown tensor type": (raw((), (tensor("t", kind=99),)), "has the type 99"),
    "no dimensions": (raw((), (tensor("t", ()),)), "has 0 dimensions"),
    "five dimensions": (raw((), (tensor("t", (1,) * 5),)), "has 5 dimensions"),
    "an empty tensor": (raw((), (tensor("t", (8, 0)),)), "odd shape [0, 8]"),
    "a size of 2**32": (raw((), (tensor("t", (2**32,)),)), "odd shape [4294967296]"),
    "half a block": (raw((), (tensor("t", (48,), kind=2),)), "Q4_0 needs a multiple of 32"),
    "a huge text": (raw((entry("k", 8, HUGE),)), "'k' ends at byte 9223372036854775"),
    "a huge array": (raw((entry("k", 9, struct.pack("<I", 8) + HUGE),)), "'k' counts 9223"),
    "a huge array of numbers": (raw((entry("k", 9, struct.pack("<I", 4) + HUGE),)), "counts 9223"),
    "unknown value type": (raw((entry("k", 13, b""),)), "'k' has the type 13"),
    "unknown type in an array": (
        raw((entry("k", 9, struct.pack("<IQ", 13, 1)),)), "'k' has the type 13"
    ),
    "neither true nor false": (raw((entry("k", 7, b"\2"),)), "'k' is neither true nor false"),
    "not UTF-8": (raw((entry("k", 8, struct.pack("<Q", 1) + b"\xff"),)), "'k' is not UTF-8"),
    "not UTF-8 in a list": (
        raw((entry("k", 9, struct.pack("<IQ", 8, 2) + text("a") + b"\1" + bytes(7) + b"\xff"),)),
        "'k' is not UTF-8 in entry 1",
    ),
    "arrays in arrays": (
        raw((entry("k", 9, struct.pack("<IQ", 9, 1) * 6 + struct.pack("<IQ", 0, 1) + b"1"),)),
        "too deep",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as e:
        read_gguf_header(path)
    assert message in str(e.value)
    assert str(e.value).startswith(str(path))
    assert "\n" not in str(e.value)


def test_arrays_of_arrays_are_read(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 0, 2)
    value = struct.pack("<IQ", 9, 2) + inner + b"\1\2" + inner + b"\3\4"
    (tmp_path / "x").write_bytes(raw((entry("k", 9, value),)))
    assert read_gguf_header(tmp_path / "x").metadata == {"k": [[1, 2], [3, 4]]}


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing"):
        read_gguf_header(tmp_path / "none.gguf")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_gguf_header(tmp_path)
    path = write_gguf(tmp_path / "big.gguf", {"a": 1}, {}, endian=GGUFEndian.BIG)
    with pytest.raises(CheckpointError, match="big-endian"):
        read_gguf_header(path)
