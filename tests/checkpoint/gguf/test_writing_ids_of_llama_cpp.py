"""llama.cpp cuts text into our ids, with every kind of tokenizer that we write."""

import json
import random
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from llama_cpp_oracle import LlamaCpp, opened

from mlxgpt.checkpoint.gguf.writing import write_gguf
from mlxgpt.errors import MLXGPTWarning
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer, train_bpe, train_char

PIECES = [
    "it's", "we'Ll", " I'VE", "don'T", "'S", "’s", "12", "345", "6789", "1,234.5", "٣٤٥", "²³½",
    "Ⅷ", "日本語のテキスト", "、中文。", "한국어", "👍🏽", "👩\u200d👩\u200d👧", "🏳️\u200d🌈",
    "e\u0301", "\u0301x", "\t", "\t\t", "\n", "\n\n\n", "\r\n", " ", "  ", "     ", " \n ",
    "\u00a0", "\u3000", "\u2028", "\u2029", "\x85", "مرحبا بالعالم", "سلام", "สวัสดีชาวโลก", "नमस्ते",
    "क्षत्रिय", "é", "ß", "ǅ", "İ", "Σ", "def f(x):", "return", "!!", "--", "----", "=====", "...",
    "#", "_", "{}", "http://a.b/c?d=e", "the", "The", " cat", "HELLO", "wwww", "endenden",
    "aaaaaaa", "\ufeff", "\u200b", "<0x0A>", "Ġ", "<|endoftext|>", "<|im_start|>", "<s>", "</s>",
    "<unk>", "[INST]",
]  # fmt: skip
CORPUS = "".join(PIECES) * 3 + "the cat sat on the mat and the dog lay down; it's 3 + 4. " * 30


def texts(count: int) -> list[str]:
    """All pieces, and rows of some of them."""
    draw = random.Random(0)
    rows = ["".join(draw.choices(PIECES, k=draw.randint(2, 12))) for _ in range(count)]
    return ["", *PIECES, *(f" {piece} x" for piece in PIECES), *rows]


@contextmanager
def in_llama_cpp(
    tokenizer: Tokenizer, path: Path, random_gpt: Callable[..., GPT], padding: int = 3
) -> Iterator[LlamaCpp]:
    sizes: dict[str, Any] = {"n_layer": 1, "n_embd": 32, "n_head": 2, "intermediate_size": 32}
    model = random_gpt(vocab_size=tokenizer.vocab_size + padding, **sizes)
    weights = ((name, w.astype(mx.float16)) for name, w in model.weights().items())
    write_gguf(path, config=model.config, weights=weights, tokenizer=tokenizer, name="ids")
    with opened(path) as llama:
        yield llama


def check(tokenizer: Tokenizer, llama: LlamaCpp, some: list[str]) -> None:
    assert len(some) > 100
    for text in some:
        ids = tokenizer.encode(text, "all")
        assert llama.ids(text) == ids, text
        assert llama.ids(text, special=False) == tokenizer.encode(text), text
        whole = tokenizer.encode(text, "all", add_special_tokens=True)
        assert llama.ids(text, borders=True) == whole, text
        if "\u2581" not in text and "<" not in text:
            assert llama.text(ids).lstrip(" ") == tokenizer.decode(ids).lstrip(" ")


@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "qwen2"])
def test_those_that_are_trained_here(
    pattern: str, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    pytest.importorskip("xllamacpp")
    specials = ["<|endoftext|>", "<|im_start|>"]
    tokenizer = train_bpe([CORPUS], 900, pattern=pattern, special_tokens=specials)
    with in_llama_cpp(tokenizer, tmp_path / "model.gguf", random_gpt) as llama:
        check(tokenizer, llama, texts(300))


def test_characters(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    pytest.importorskip("xllamacpp")
    tokenizer = train_char(["the cat sat on the mat; 日本語 é\n\t"])
    with in_llama_cpp(tokenizer, tmp_path / "model.gguf", random_gpt) as llama:
        check(tokenizer, llama, texts(300))
        # The one thing that such a file cannot tell from a space.
        assert llama.ids("\u2581") == tokenizer.encode(" ") != tokenizer.encode("\u2581")


def test_characters_without_a_space(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    pytest.importorskip("xllamacpp")
    tokenizer = train_char(["emma\nolivia\nava\n"])
    with (
        pytest.warns(MLXGPTWarning, match="no token for a space"),
        in_llama_cpp(tokenizer, tmp_path / "model.gguf", random_gpt, padding=0) as llama,
    ):
        check(tokenizer, llama, [text for text in texts(300) if " " not in text])


def test_a_text_without_an_end(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    pytest.importorskip("xllamacpp")
    tokenizer = train_bpe([CORPUS], 600, special_tokens=[])
    with (
        pytest.warns(MLXGPTWarning, match="no token ends a text; the byte 0xFF"),
        in_llama_cpp(tokenizer, tmp_path / "model.gguf", random_gpt) as llama,
    ):
        check(tokenizer, llama, texts(50))


PUBLISHED = [
    "gpt2", "llama3", "qwen3", "gpt-neox-20b", "gguf-starcoder", "smollm2-from-gguf", "llama2",
    "ortx-phi-3-mini",
]  # fmt: skip
WITHOUT_NFC = ("qwen3", "gpt-neox-20b")
ENDS_ANYHOW = ("qwen3", "ortx-phi-3-mini")
"""Where `</s>` is no special token; llama.cpp makes it one by its name."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_those_of_well_known_models(
    name: str, shared_data: Path, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    pytest.importorskip("xllamacpp")
    folder = shared_data / "tokenizers" / name
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    some = texts(400) + [case["text"] for case in golden["cases"]]
    if name in WITHOUT_NFC:
        some = [text for text in some if unicodedata.is_normalized("NFC", text)]
    if name in ENDS_ANYHOW:
        some = [text for text in some if "</s>" not in text]
    tokenizer = Tokenizer.load(folder)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", MLXGPTWarning)
        with in_llama_cpp(tokenizer, tmp_path / "model.gguf", random_gpt) as llama:
            check(tokenizer, llama, some)
    said = " ".join(str(note.message) for note in notes)
    assert ("does not normalize text to NFC" in said) == (name in WITHOUT_NFC)
    assert ("cannot say rstrip of 11" in said) == (name == "ortx-phi-3-mini")


def test_one_with_few_tokens_in_the_way_of_sentencepiece(
    shared_data: Path, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    pytest.importorskip("xllamacpp")
    tokenizer = Tokenizer.load(shared_data / "checkpoints" / "stories260K-hf")
    with in_llama_cpp(tokenizer, tmp_path / "model.gguf", random_gpt) as llama:
        check(tokenizer, llama, texts(400))
