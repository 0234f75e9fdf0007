"""Tokenizers of well-known models: the recorded ids and texts, also saved, streamed and pickled."""

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

from mlxgpt.errors import MLXGPTWarning, TokenizerError
from mlxgpt.text import Tokenizer

hf = pytest.importorskip("tokenizers")

ENDS = {
    "gpt2": "<|endoftext|>", "llama3": "<|end_of_text|>", "qwen3": "<|endoftext|>",
    "gpt-neox-20b": "<|endoftext|>", "gguf-starcoder": "<|endoftext|>",
    "smollm2-from-gguf": "<|endoftext|>", "llama2": "</s>", "ortx-phi-3-mini": "<|endoftext|>",
}  # fmt: skip
"""What ends a document."""
OTHERS = {"bert-minilm": ("wordpiece", None), "t5": ("unigram", "</s>")}


def check(tokenizer: Tokenizer, cases: list[dict[str, Any]]) -> None:
    assert cases
    for case in cases:
        ids = tokenizer.encode(case["text"], "all")
        assert ids == case["ids_no_special"], case["text"]
        assert tokenizer.encode(case["text"], "all", add_special_tokens=True) == case["ids"]
        assert tokenizer.encode_array(case["text"], "all").tolist() == ids
        assert tokenizer.decode(ids) == case["decoded"]
        for skip in (False, True):
            stream = tokenizer.stream_decoder(skip)
            pieces = [stream.push(i) for i in ids]
            assert "".join([*pieces, stream.finish()]) == tokenizer.decode(ids, skip)


def check_all(folder: Path, tmp_path: Path) -> Tokenizer:
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.vocab_size == golden["vocab_size_with_added"]
    check(tokenizer, golden["cases"])
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again, again.content_hash) == (tokenizer, tokenizer.content_hash)
    assert (again.eot_id, again.kind) == (tokenizer.eot_id, tokenizer.kind)
    check(again, golden["cases"])
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.no_padding()
    theirs.no_truncation()
    for case in golden["cases"]:
        assert theirs.encode(case["text"]).ids == case["ids"]
        assert theirs.encode(case["text"], add_special_tokens=False).ids == case["ids_no_special"]
    return tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_bpe_gives_the_recorded_ids(shared_data: Path, tmp_path: Path, name: str) -> None:
    tokenizer = check_all(shared_data / "tokenizers" / name, tmp_path)
    assert (tokenizer.kind, tokenizer.engine) == ("bpe", "mlxgpt")
    assert tokenizer.supports_dropout
    assert tokenizer.fallback_reason is None
    assert tokenizer.special_tokens[ENDS[name]] == tokenizer.eot_id
    text = "Dropout splits words into smaller parts. " * 4
    dropped = tokenizer.encode(text, dropout=0.5, seed=1)
    assert len(dropped) > len(tokenizer.encode(text))
    assert tokenizer.decode(dropped) == text


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_others_go_through_the_library(shared_data: Path, tmp_path: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MLXGPTWarning)
        tokenizer = check_all(shared_data / "tokenizers" / name, tmp_path)
    kind, end = OTHERS[name]
    assert (tokenizer.kind, tokenizer.engine) == (kind, "tokenizers")
    assert not tokenizer.supports_dropout
    assert tokenizer.eot_id == (None if end is None else tokenizer.special_tokens[end])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("odd-keras", "this is no tokenizer.json: it has no 'model'"),
        ("odd-swift-noflags", r"merges\[0\] .* needs the token 'off', which model.vocab lacks"),
        ("odd-llama2-ortx-broken", r"merges\[18917\] cannot be divided into two tokens"),
    ],
)
def test_damaged_ones_are_refused(shared_data: Path, name: str, message: str) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        Tokenizer.load(shared_data / "tokenizers" / name)
    assert str(shared_data / "tokenizers" / name / "tokenizer.json") in str(caught.value)
    assert "\n" not in str(caught.value)
