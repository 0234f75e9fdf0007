"""The table of `mlxgpt info` in words: what is known, and nothing for what is not."""

from typing import Any

import pytest

from mlxgpt.cli.info.adapter import adapter_rows
from mlxgpt.cli.info.rows import model_rows, size


def facts_of(**changes: Any) -> dict[str, Any]:
    quantized = {"bits": 4, "group_size": 64, "mode": "affine", "matrices": 20}
    here = {"memory_bytes": 1000, "weights_bytes": 600, "cache_bytes": 300, "fits": True}
    facts: dict[str, Any] = {"kind": "model", "model": "m", "path": "/cache/m", "format": "GGUF"}
    facts |= dict.fromkeys(("n_layer", "n_embd", "n_head", "n_kv_head", "head_dim", "context"))
    facts |= dict.fromkeys(("intermediate_size", "experts", "experts_per_token", "vocab_size"))
    facts |= dict.fromkeys(("rope_theta", "rope_scaling", "sliding_window", "layers_with_window"))
    facts |= {"family": "odd", "run_by": None, "tie_embeddings": None, "parameters": 8_030_261_248}
    facts |= {"parameters_outside_embedding": 5, "tensors": 3, "dtype": "float16"}
    facts |= {"quantization": [quantized], "stored_types": {"Q4_K": 4, "F32": 2}}
    facts |= {"bytes_on_disk": 6, "bytes_in_memory": 6, "bytes_in_memory_float32": 60}
    facts |= {"kv_bytes_per_token": None, "kv_bytes_context": None, "stop_tokens": []}
    facts |= {"chat_template": False, "tokenizer": None, "tokenizer_problem": "why"}
    return facts | {"training": None, "here": here | {"tokens": 9}} | changes


def test_what_is_not_known_has_no_row() -> None:
    assert dict(model_rows(facts_of())) == {
        "model": "m",
        "path": "/cache/m",
        "architecture": "odd, GGUF; cannot be run here: mlxgpt does not know it (mlx-lm, which "
        "runs others, reads no GGUF)",
        "parameters": "8,030,261,248 (8.03 billion); 5 of them outside the embedding",
        "tokenizer": "none: why",
        "ends a text": "no id: length alone does",
        "chat template": "no",
        "weights": "4 bits, groups of 64 (20 matrices); the rest float16",
        "on disk": "6 bytes in 3 tensors: Q4_K, F32",
        "in memory": "6 bytes as stored, on a GPU; 60 bytes in float32, on a CPU",
        "this machine": "fits with the whole context: 900 bytes of 1,000 bytes",
    }


def test_several_kinds_of_quantization_are_told() -> None:
    ways = [
        {"bits": 4, "group_size": 64, "mode": "affine", "matrices": 20},
        {"bits": 8, "group_size": 64, "mode": "affine", "matrices": 7},
        {"bits": 4, "group_size": 32, "mode": "mxfp4", "matrices": 1},
    ]
    assert dict(model_rows(facts_of(quantization=ways)))["weights"] == (
        "4 bits, groups of 64 (20 matrices); 7 with 8 bits; 1 with 4 bits, groups of 32 (mxfp4); "
        "the rest float16"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights_bytes": 1001}, "does not fit: 1,001 bytes of weights, and 1,000 bytes"),
        ({"cache_bytes": None}, "the weights fit: 600 bytes of 1,000 bytes"),
        ({"cache_bytes": 500, "fits": False}, "fits with 9 tokens of context at most: weights"),
        ({"memory_bytes": None}, None),
    ],
)
def test_whether_it_fits_is_said(changes: dict[str, Any], words: str | None) -> None:
    here = facts_of()["here"] | changes
    said = dict(model_rows(facts_of(here=here))).get("this machine")
    assert said is None if words is None else said is not None and said.startswith(words)


def test_bytes_in_words() -> None:
    words = [size(n) for n in (0, 1023, 1024, 1536 * 1024, 3 * 2**30, 5 * 2**40)]
    assert words == ["0 bytes", "1,023 bytes", "1.0 KiB", "1.5 MiB", "3.0 GiB", "5,120.0 GiB"]


def test_several_ranks_and_scales_are_told() -> None:
    facts = {"model": "a", "form": "PEFT", "fine_tune_type": "dora", "base": None, "dropout": 0.1}
    facts |= {"ranks": {"8": 10, "16": 2}, "scales": [1.0, 2.0], "modules": ["q_proj"]}
    facts |= {"layers": 12, "parameters": 5, "matrices": 12, "bytes_on_disk": 3}
    rows = dict(adapter_rows(facts))
    assert (rows["rank"], rows["scale"]) == ("8, 16 in 2", "1 to 2")
    assert (rows["kind"], rows["base"], rows["dropout"]) == ("DoRA", "not named", "0.1")


def test_a_token_keeps_to_its_line() -> None:
    tokens = [{"id": 1, "text": "\n"}, {"id": 2, "text": "<｜end▁of▁text｜>"}]
    assert dict(model_rows(facts_of(stop_tokens=tokens)))["ends a text"] == (
        "\\n 1, <｜end▁of▁text｜> 2"
    )


def test_where_a_model_is_is_told_if_its_name_does_not_say_so() -> None:
    assert "path" not in dict(model_rows(facts_of(path="m")))
    words = dict(model_rows(facts_of(path=None)))["path"]
    assert words == "on the Hub; its weights are not downloaded yet"


def test_many_ends_are_cut_short() -> None:
    tokens = [{"id": i, "text": "x"} for i in range(9)]
    words = dict(model_rows(facts_of(stop_tokens=tokens)))["ends a text"]
    assert words == "x 0, x 1, x 2, x 3, x 4, x 5, and 3 more"
