"""The `tokenizers` library as the oracle: the same merges, and the same ids from our files.

The `regex` module knows newer Unicode than the library, so that some characters are letters for the
one and nothing for the other; texts are compared on characters that both classify alike.
"""

import json
import tempfile
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.text import END_OF_TEXT, PATTERNS, Tokenizer, train_bpe, train_char

hf = pytest.importorskip("tokenizers")

DOCUMENTS = [
    "The hug of a pug, don't we'LL it's 12 3456\n\n  x = [1, 22]\r\n\tend  ",
    "naïve café 日本語 日本 👍👍 <b> aaaaaaaa  aaaa",
]
SPECIALS = [END_OF_TEXT, "<|pad|>"]
KINDS = ["gpt2", "llama3", "qwen2", r"\d+|[^\d]+", "char"]
TEXTS = {
    "tinyshakespeare.txt": 200_000,
    "wikitext-2.valid.txt": 200_000,
    "sotu.en.txt": 200_000,
    "udhr2.multilingual.txt": 200_000,
    "wagahaiwa_nekodearu.ja.txt": 100_000,
}
"""Text -> characters of it in the default run."""


def train(kind: str, documents: list[str], vocab_size: int = 340) -> Tokenizer:
    if kind == "char":
        return train_char(documents, special_tokens=SPECIALS)
    return train_bpe(documents, vocab_size, pattern=kind, special_tokens=SPECIALS)


OURS = {kind: train(kind, DOCUMENTS) for kind in KINDS}


def saved(ours: Tokenizer) -> str:
    """The tokenizer.json of one of ours."""
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder)
        return Path(folder, "tokenizer.json").read_text(encoding="utf-8")


THEIRS = {kind: hf.Tokenizer.from_str(saved(ours)) for kind, ours in OURS.items()}


@pytest.fixture(scope="session")
def differing() -> set[str]:
    """The characters that are a letter, number or space for only one of the library and `regex`."""
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    differing: set[str] = set()
    for expression in (r"\p{L}", r"\p{N}", r"\s"):
        split = hf.pre_tokenizers.Split(hf.Regex(expression), "removed")
        rest = set("".join(piece for piece, _ in split.pre_tokenize_str(everything)))
        differing |= rest ^ set(regex.sub(expression, "", everything))
    return differing


# Assigned in Unicode 10 or earlier, and of every class and width.
LETTERS = st.text(
    "aZ09 \n\r\t'sltreé\u00a0\u0301\u3000ßſÅ日語ไทยअकबग٣²Ⅳ½!,.<|>_^👍\x00\x85", max_size=40
)
PIECES = st.lists(
    st.one_of(LETTERS, st.sampled_from([*SPECIALS, "<0x0A>", "'ll", "  ", "aaaa", "hug"])),
    max_size=6,
).map("".join)


@given(st.sampled_from(KINDS), PIECES)
def test_the_library_gives_the_same_ids_and_text(kind: str, text: str) -> None:
    ours, theirs = OURS[kind], THEIRS[kind]
    ids = ours.encode(text, allowed_special="all")
    assert theirs.encode(text).ids == ids
    assert theirs.decode(ids, skip_special_tokens=False) == text == ours.decode(ids)
    assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids, skip_special=True)


@pytest.mark.slow
@given(st.sampled_from(KINDS), st.text(max_size=30))
def test_any_text_of_common_characters_has_the_same_ids(
    differing: set[str], kind: str, text: str
) -> None:
    text = "".join(character for character in text if character not in differing)
    assert THEIRS[kind].encode(text).ids == OURS[kind].encode(text)


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_sees_the_same_vocabulary(kind: str) -> None:
    ours, theirs = OURS[kind], THEIRS[kind]
    assert theirs.get_vocab_size() == ours.vocab_size
    for name, i in ours.special_tokens.items():
        assert theirs.token_to_id(name) == i


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama3", "char"])
def test_a_saved_file_opens_in_transformers(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours = OURS[kind]
    ours.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("A pug\n é  x", "<0x0A> is no line end", " ,don't . 日本"):
        assert theirs.encode(text, add_special_tokens=False) == ours.encode(text)
        assert theirs.decode(ours.encode(text)) == text
    assert (theirs.eos_token, theirs.eos_token_id) == (END_OF_TEXT, ours.eot_id)


def merges_of_library(documents: list[str], vocab_size: int, pattern: str) -> list[list[str]]:
    tokenizer = hf.Tokenizer(hf.models.BPE())
    tokenizer.pre_tokenizer = hf.pre_tokenizers.Sequence(
        [
            hf.pre_tokenizers.Split(hf.Regex(PATTERNS[pattern]), "isolated"),
            hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = hf.trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return json.loads(tokenizer.to_str())["model"]["merges"]


def merges_of_ours(tokenizer: Tokenizer) -> list[list[str]]:
    return json.loads(saved(tokenizer))["model"]["merges"]


@given(st.lists(st.text("ab ", max_size=30), max_size=8), st.integers(256, 300))
def test_training_agrees_on_small_texts_full_of_ties(documents: list[str], size: int) -> None:
    ours = merges_of_ours(train_bpe(documents, size, special_tokens=[]))
    assert ours == merges_of_library(documents, size, "gpt2")


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("pattern", ["gpt2", "qwen2"])
def test_training_and_encoding_agree_on_real_texts(
    shared_data: Path, differing: set[str], name: str, pattern: str
) -> None:
    text = (shared_data / "text" / name).read_text(encoding="utf-8")[: TEXTS[name]]
    text = "".join(character for character in text if character not in differing)
    documents = text.split("\n\n")
    ours = train_bpe(documents, 2000, pattern=pattern)
    assert merges_of_ours(ours) == merges_of_library(documents, 1999, pattern)
    assert ours.vocab_size == 2000
    theirs = hf.Tokenizer.from_str(saved(ours))
    other = (shared_data / "text" / "udhr2.multilingual.txt").read_text(encoding="utf-8")[:100_000]
    other = "".join(character for character in other if character not in differing)
    for each in (text, other):
        assert ours.encode(each) == theirs.encode(each).ids
        assert ours.decode(ours.encode(each)) == each
