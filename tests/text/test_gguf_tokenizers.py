"""Tokenizers from the metadata of GGUF files: both kinds, what stands around a text, errors."""

import warnings
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import MLXGPTWarning, TokenizerError
from mlxgpt.text import Tokenizer, tokenizer_from_gguf, train_bpe
from mlxgpt.text.bpe.byte_alphabet import to_characters
from mlxgpt.text.files.gguf_patterns import WORD_CUTS, cut_name
from mlxgpt.text.files.gguf_reading import read_gguf_tokenizer
from mlxgpt.text.files.sentencepiece_merges import merges_by_score

TEXT = "The hug of a pug: don't, 12 3456! café 日本 # #version a b 'Tis he'LL"
NAMES = {"gpt2": "gpt-2", "llama3": "smaug-bpe", "qwen2": "qwen2"}
SPACE = "\u2581"


def entries(tokenizer: Tokenizer, pre: str | None, /, **more: Any) -> dict[str, Any]:
    """Metadata for a tokenizer that was trained here; None leaves an entry out."""
    model = tokenizer._engine.model  # type: ignore[union-attr]
    special = {i: name for name, i in tokenizer.special_tokens.items()}
    tokens = [*model.tokens, *[None] * (tokenizer.vocab_size - len(model.tokens))]
    names = [special.get(i) or to_characters(token or b"") for i, token in enumerate(tokens)]
    found = {
        "model": "gpt2", "pre": pre, "tokens": names,
        "token_type": [3 if i in special else 1 for i in range(len(names))],
        "merges": [f"{names[left]} {names[right]}" for left, right in model.merges],
        "eos_token_id": tokenizer.eot_id,
    } | more  # fmt: skip
    return {f"tokenizer.ggml.{name}": v for name, v in found.items() if v is not None}


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return train_bpe([TEXT] * 3, 330, special_tokens=("<|endoftext|>", "<s>"))


@pytest.mark.parametrize("pattern", NAMES)
def test_what_was_trained_is_read_back(pattern: str) -> None:
    tokenizer = train_bpe([TEXT] * 3, 330, pattern=pattern)
    again = tokenizer_from_gguf(entries(tokenizer, NAMES[pattern]), "x.gguf")
    assert again == tokenizer
    assert again.patterns == tokenizer.patterns
    assert (again.eot_id, again.engine) == (tokenizer.eot_id, "mlxgpt")


@given(st.text("hug The'tsLL 123é日<|endoftext|>\n", max_size=30))
def test_ids_are_those_of_the_original(trained: Tokenizer, text: str) -> None:
    again = tokenizer_from_gguf(entries(trained, "gpt-2"), "x.gguf")
    assert again.encode(text, "all") == trained.encode(text, "all")
    assert again.decode(again.encode(text)) == text


def test_each_name_has_one_cut_and_is_found_by_it() -> None:
    for name, cut in WORD_CUTS.items():
        found = cut_name(cut.expressions, ignore_merges=cut.ignore_merges)
        assert found is not None
        assert WORD_CUTS[found].expressions == cut.expressions, name
    usual = {"gpt-2": ("gpt2", False), "llama-bpe": ("llama3", True), "qwen2": ("qwen2", False)}
    for name, (pattern, ignore_merges) in usual.items():
        assert cut_name(train_bpe([TEXT], 260, pattern=pattern).patterns,
                        ignore_merges=ignore_merges) == name  # fmt: skip
    assert cut_name((r"\w+",), ignore_merges=False) is None


@pytest.mark.parametrize("name", WORD_CUTS)
def test_no_cut_needs_the_library(name: str, trained: Tokenizer) -> None:
    again = tokenizer_from_gguf(entries(trained, name, bos_token_id=0), "x.gguf")
    assert again.engine == "mlxgpt"
    assert again.ignore_merges == WORD_CUTS[name].ignore_merges
    assert again.decode(again.encode(TEXT * 2)) == TEXT * 2


def around(metadata: dict[str, Any]) -> list[int]:
    return tokenizer_from_gguf(metadata, "x.gguf").encode("hug", add_special_tokens=True)


def test_what_stands_around_a_text(trained: Tokenizer) -> None:
    eos, bos = trained.special_tokens["<|endoftext|>"], trained.special_tokens["<s>"]
    plain = trained.encode("hug")
    borders = {"bos_token_id": bos, "eos_token_id": eos}
    for name, first in (("gpt-2", []), ("llama-bpe", [bos])):
        assert around(entries(trained, name, **borders)) == [*first, *plain]
        assert around(entries(trained, name, **borders, add_bos_token=False)) == plain
        assert around(entries(trained, name, **borders, add_bos_token=True)) == [bos, *plain]
        more = entries(trained, name, **borders, add_bos_token=True, add_eos_token=True)
        assert around(more) == [bos, *plain, eos]
        assert read_gguf_tokenizer(more, "x").names == {
            "bos_token": "<s>", "eos_token": "<|endoftext|>"
        }  # fmt: skip
    for name in ("gpt-2", "llama-bpe"):
        with pytest.raises(
            TokenizerError, match="add_bos_token is true, but there is no bos_token"
        ):
            around(entries(trained, name, add_bos_token=True))


def test_added_tokens_act_as_their_types_say(trained: Tokenizer) -> None:
    names = [*entries(trained, "gpt-2")["tokenizer.ggml.tokens"], "<tool>", "[X]"]
    types = [*entries(trained, "gpt-2")["tokenizer.ggml.token_type"], 4, 3]
    again = tokenizer_from_gguf(entries(trained, "gpt-2", tokens=names, token_type=types), "x.gguf")
    assert len(again.encode("<tool>")) == 1
    assert len(again.encode("[X]")) > 1
    assert again.encode("[X]", "all") == [len(names) - 1]
    assert [*again.special_tokens] == ["<|endoftext|>", "<s>", "[X]"]


def test_rows_without_a_token_are_no_ids(trained: Tokenizer) -> None:
    names = entries(trained, "gpt-2")["tokenizer.ggml.tokens"]
    types = entries(trained, "gpt-2")["tokenizer.ggml.token_type"]
    count = len(names)
    padded = {
        "tokens": [*names, f"[PAD{count}]", f"[PAD{count + 1}]"],
        "token_type": [*types, 5, 5],
    }
    again = tokenizer_from_gguf(entries(trained, "gpt-2", **padded), "x.gguf")
    assert again == trained
    assert again.vocab_size == count
    other = {"tokens": [*names, "[PAD0]"], "token_type": [*types, 5]}
    again = tokenizer_from_gguf(entries(trained, "gpt-2", **other), "x.gguf")
    assert again.vocab_size == count + 1


def test_without_types_the_borders_are_special(trained: Tokenizer) -> None:
    again = tokenizer_from_gguf(entries(trained, "gpt-2", token_type=None), "x.gguf")
    assert again.special_tokens == {"<|endoftext|>": trained.eot_id}


def test_only_qwen_normalizes(trained: Tokenizer) -> None:
    for architecture, pre, form in (
        ("qwen2", "qwen2", ("NFC",)), ("qwen3", "qwen2", ("NFC",)), ("llama", "qwen2", ()),
        ("qwen2", "deepseek-r1-qwen", ()), ("qwen2", "gpt-2", ()),
    ):  # fmt: skip
        metadata = {"general.architecture": architecture, **entries(trained, pre)}
        assert tokenizer_from_gguf(metadata, "x.gguf").parts["normalizer"] == form


def test_a_file_that_does_not_say_how_it_cuts_is_read_with_a_note(trained: Tokenizer) -> None:
    with pytest.warns(MLXGPTWarning, match=r"x\.gguf does not say how text is cut"):
        again = tokenizer_from_gguf(entries(trained, None), "x.gguf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again == tokenizer_from_gguf(entries(trained, "default"), "x.gguf")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bert": ({"model": "bert"}, "model 'bert' is not supported; known: gpt2, llama"),
    "t5": ({"model": "t5"}, "model 't5' is not supported"),
    "no model": ({"model": None}, "model must be a text, got None"),
    "an unknown cut": ({"pre": "gpt-3"}, "pre 'gpt-3' is not known; did you mean 'gpt-2'?"),
    "a number for a cut": ({"pre": 3}, "pre must be a text, got 3"),
    "no tokens": ({"tokens": []}, "tokens is empty"),
    "tokens that are numbers": ({"tokens": [1, 2]}, "tokens must be a list, got [1, 2]"),
    "a token twice": ({"tokens": ["a", "a"], "token_type": [1, 1]}, "tokens 'a' stands twice"),
    "no merges": ({"merges": None}, "merges must be a list, got None"),
    "types missing": ({"token_type": [1]}, "token_type has 1 for 3"),
    "an unknown type": ({"token_type": [7] * 999}, "token_type 7 is not known; known: 1 to 6"),
    "an id too large": ({"eos_token_id": 999}, "eos_token_id must be an id below 3"),
    "a negative id": ({"bos_token_id": -1}, "bos_token_id must be an id below 3"),
    "a flag of 1": ({"add_bos_token": 1}, "add_bos_token must be true or false, got 1"),
    "no end to add": ({"add_eos_token": True, "eos_token_id": None}, "there is no eos_token_id"),
    "a merge of nothing": ({"merges": ["u g", "q"]}, "merges[1] is no pair of tokens: 'q'"),
    "a merge to nothing": ({"merges": ["q q"]}, "needs the token 'qq', which model.vocab lacks"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_or_damaged_is_refused(
    changes: dict[str, Any], message: str, trained: Tokenizer
) -> None:
    with pytest.raises(TokenizerError) as e:
        tokenizer_from_gguf(entries(trained, "gpt-2", **changes), "x.gguf")
    assert message in str(e.value)
    assert str(e.value).startswith("x.gguf: ")
    assert "\n" not in str(e.value)


# SentencePiece


def pieces(**more: Any) -> dict[str, Any]:
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    learned = [SPACE, "h", "u", "g", "a", "ug", f"{SPACE}h", f"{SPACE}hug", "hug", "ga"]
    found = {
        "model": "llama", "tokens": ["<unk>", "<s>", "</s>", *bytes_, *learned],
        "token_type": [2, 3, 3, *[6] * 256, *[1] * len(learned)],
        "scores": [0.0] * 259 + [-9.0, -8.0, -7.0, -6.0, -5.0, -1.0, -2.0, -3.0, -4.0, -0.5],
    } | more  # fmt: skip
    return {f"tokenizer.ggml.{name}": v for name, v in found.items() if v is not None}


def test_pieces_are_joined_by_their_scores() -> None:
    tokenizer = tokenizer_from_gguf(pieces(), "x.gguf")
    words = tokenizer.encode("hug ga ugh👍")
    names = pieces()["tokenizer.ggml.tokens"]
    thumb = [f"<0x{byte:02X}>" for byte in "👍".encode()]
    assert [names[i] for i in words] == [f"{SPACE}hug", SPACE, "ga", SPACE, "ug", "h", *thumb]
    assert tokenizer.decode(words) == "hug ga ugh👍"
    assert tokenizer.encode("a", add_special_tokens=True)[0] == 1, "BOS is put before by default"
    assert [*tokenizer.special_tokens] == ["<unk>", "<s>", "</s>"]
    assert tokenizer.eot_id == 2
    plain = tokenizer_from_gguf(pieces(add_space_prefix=False, add_bos_token=False), "x.gguf")
    assert [names[i] for i in plain.encode("hug", add_special_tokens=True)] == ["hug"]
    assert plain.decode(plain.encode(" hug ")) == " hug "


def test_no_pieces_are_joined_to_a_control_token() -> None:
    metadata = pieces()
    for name, more in (("tokens", ["<", "s", ">", "<s"]), ("token_type", [1] * 4),
                       ("scores", [-10.0, -11.0, -12.0, 1.0])):  # fmt: skip
        metadata[f"tokenizer.ggml.{name}"] += more
    tokenizer = tokenizer_from_gguf(metadata, "x.gguf")
    assert tokenizer.engine == "mlxgpt"
    assert 1 not in tokenizer.encode("<s>")
    assert 1 in tokenizer.encode("<s>", "all")


def test_ids_of_pieces_are_defaults_only_where_they_are_borders() -> None:
    metadata = pieces()
    types = metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.token_type"] = [1, 1, 3, *types[3:]]
    metadata["tokenizer.ggml.add_bos_token"] = False
    assert read_gguf_tokenizer(metadata, "x").names == {"eos_token": "</s>"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "scores must be a list, got None"),
        ({"scores": [0.5]}, "scores has 1 for 269 tokens"),
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces true is not supported"),
    ],
)
def test_pieces_that_are_damaged_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError) as e:
        tokenizer_from_gguf(pieces(**changes), "x.gguf")
    assert message in str(e.value)


@given(
    st.dictionaries(st.text("ab", min_size=2, max_size=4), st.integers(-9, 0), max_size=8),
    st.text("ab", max_size=12),
)
def test_merges_by_score_do_what_the_scores_say(scores: dict[str, int], text: str) -> None:
    known = {"a": -99.0, "b": -99.0, **scores}
    ranks = {(left, right): n for n, (left, right) in enumerate(merges_by_score(known))}
    by_rank = list(text)
    while True:  # the best score; of one score the longest left part, then as the pieces come
        pairs = list(pairwise(by_rank))
        possible = [(ranks[pair], n) for n, pair in enumerate(pairs) if pair in ranks]
        joined = [known[left + right] for left, right in pairs if left + right in known]
        assert len(possible) == len(joined)
        if not possible:
            break
        _, at = min(possible)
        assert known[by_rank[at] + by_rank[at + 1]] == max(joined)
        by_rank[at : at + 2] = [by_rank[at] + by_rank[at + 1]]
    assert "".join(by_rank) == text
