"""Metadata that no program writes: refused in one line that can be printed, or passed over."""

import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.errors import CheckpointError

STRING, ARRAY, FLOAT64, UINT32 = 8, 9, 12, 4


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def texts(*values: str) -> bytes:
    return struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values))


Entries = dict[str, tuple[int, bytes]]
SIZES: Entries = {
    f"llama.{name}": (UINT32, struct.pack("<I", 8))
    for name in ("block_count", "attention.head_count", "embedding_length", "feed_forward_length")
}


def with_entries(path: Path, entries: Entries) -> GGUFFile:
    """Write a file of metadata alone."""
    everything: Entries = {"general.architecture": (STRING, text("llama")), **entries}
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, len(everything))
    for key, (kind, value) in everything.items():
        content += text(key) + struct.pack("<I", kind) + value
    path.write_bytes(content)
    return GGUFFile(path)


def test_a_list_for_a_token_ends_no_text(tmp_path: Path) -> None:
    nested = struct.pack("<IQ", ARRAY, 2) + texts("<|im_end|>") * 2
    types = struct.pack("<IQII", UINT32, 2, 3, 3)
    entries = {"tokenizer.ggml.token_type": (ARRAY, types)}
    file = with_entries(tmp_path / "a", entries | {"tokenizer.ggml.tokens": (ARRAY, nested)})
    assert file.stop_ids == frozenset()
    flat = (ARRAY, texts("a", "<|im_end|>"))
    assert with_entries(tmp_path / "b", entries | {"tokenizer.ggml.tokens": flat}).stop_ids == {1}


ODD: dict[str, tuple[Entries, Callable[[GGUFFile], object]]] = {
    "a key": ({"llama.a\nb": (STRING, text("c\nd" * 999))}, lambda file: file.config),
    "a count of parts": ({"split.count": (STRING, text("a\nb"))}, lambda file: file.config),
    "an architecture": (
        {"general.architecture": (STRING, text("a\nb" * 999))}, lambda file: file.config
    ),
    "an alignment": ({"general.alignment": (STRING, text("x\n" * 999))}, lambda f: f.tensors()),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "ask"), ODD.values(), ids=ODD)
def test_what_it_says_does_not_spoil_the_message(
    entries: Entries, ask: Callable[[GGUFFile], object], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as e:
        ask(with_entries(tmp_path / "odd.gguf", entries))
    assert str(e.value).isprintable()
    assert "odd.gguf" in str(e.value)
    assert len(str(e.value)) < 500


def test_a_number_that_float32_does_not_hold(tmp_path: Path) -> None:
    entries = SIZES | {"llama.rope.freq_base": (FLOAT64, struct.pack("<d", 1e308))}
    with warnings.catch_warnings(), pytest.raises(CheckpointError, match="8 layers, but only 0"):
        warnings.simplefilter("error")
        _ = with_entries(tmp_path / "large.gguf", entries).config
