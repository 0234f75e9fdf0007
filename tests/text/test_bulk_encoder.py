"""A tokenizer that uses the kernels gives the ids of one that does not, whatever the file."""

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_files import SPACE, added, byte_level, in_a_row, sentencepiece, split
from test_unknown_bytes import without_bytes

from mlxgpt.errors import TokenizerError
from mlxgpt.text import PATTERNS, Tokenizer, train_char
from mlxgpt.text.bulk_encoder import ends_at_border
from mlxgpt.text.pipeline.pre_tokenizers import SpaceBorder

# Of bytes without a token, in the family that lacks some.
pytestmark = pytest.mark.filterwarnings("ignore::mlxgpt.errors.MLXGPTWarning")

PROSE = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
MUCH = 10**9
DIGITS = {"type": "Digits", "individual_digits": True}


def changed(content: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {**content, **parts}


def with_added() -> dict[str, Any]:
    content = byte_level()
    n = len(content["model"]["vocab"]) + len(content["added_tokens"])
    more = [added("  ", n, special=False, normalized=True), added("zqzq", n + 1, special=False)]
    return changed(content, added_tokens=[*content["added_tokens"], *more])


def whole_words() -> dict[str, Any]:
    content = byte_level()
    content["model"]["ignore_merges"] = True
    n = content["model"]["vocab"]["zq"] = len(content["model"]["vocab"])  # no merge leads to it
    content["added_tokens"][0]["id"] = n + 1
    return content


def marked(**pre_tokenizer: Any) -> dict[str, Any]:
    return changed(sentencepiece(), normalizer=None, pre_tokenizer=pre_tokenizer)


FAMILIES = {
    **{name: lambda p=p: changed(byte_level(), pre_tokenizer=in_a_row(split(p)))
       for name, p in PATTERNS.items()},
    "unknown pattern": lambda: changed(byte_level(), pre_tokenizer=in_a_row(split(r"\w+|\s+"))),
    "no pattern": lambda: changed(byte_level(), pre_tokenizer=in_a_row()),
    "removed": lambda: changed(byte_level(), pre_tokenizer=in_a_row(split(r"\s", "Removed"))),
    "starcoder": lambda: changed(
        byte_level(), pre_tokenizer=in_a_row(DIGITS, split(PATTERNS["gpt2"]))
    ),
    "prefix": lambda: changed(
        byte_level(),
        pre_tokenizer={
            "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True
        },
    ),
    "nfc": lambda: changed(byte_level(), normalizer={"type": "NFC"}),
    "added": with_added,
    "llama": sentencepiece,
    "mistral": lambda: marked(
        type="Metaspace", replacement=SPACE, prepend_scheme="first", split=False
    ),
    "metaspace": lambda: marked(
        type="Metaspace", replacement=SPACE, prepend_scheme="always", split=True
    ),
    "missing bytes": without_bytes,
    "whole words": whole_words,
}  # fmt: skip


def load(content: dict[str, Any], folder: Path) -> Tokenizer:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return Tokenizer.load(folder)


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The same tokenizer twice, the second with kernels."""
    content = FAMILIES[request.param]()
    folder = tmp_path_factory.mktemp("family")
    plain, compiled = load(content, folder), load(content, folder)
    assert plain.engine == "mlxgpt"
    assert compiled.use_compiled(MUCH)
    return plain, compiled


PIECES = [
    "hug",
    "pug",
    "the",
    "'",
    "'s",
    "don't",
    "12",
    "345",
    "é",
    "é",
    "中",
    "日本",
    "👍🏽",
    "▁",
    "▁▁",
    "ug",
    "zq",
    "zqzq",
    "!",
    "\x00",
    "\x04",
    "ſ",
    "'ſ",
]
SPACES = [" ", "  ", "\t", "\n", "\r\n", " \n "]
TEXTS = st.lists(st.sampled_from([*PIECES, *SPACES]) | st.text(max_size=4), max_size=30)


@given(TEXTS.map("".join), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(0, 9))
def test_ids_are_those_of_the_plain_tier(
    pair: tuple[Tokenizer, Tokenizer], text: str, rate: float, seed: int
) -> None:
    plain, compiled = pair
    wanted = plain.encode(text, "all", dropout=rate, seed=seed)
    got = compiled.encode_array(text, "all", dropout=rate, seed=seed)
    assert got.dtype == np.int32
    assert got.tolist() == wanted
    assert compiled.encode(text, "all", dropout=rate, seed=seed) == wanted
    assert plain.encode_array(text, "all", dropout=rate, seed=seed).tolist() == wanted


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_page_has_the_same_ids_in_eight_threads(
    pair: tuple[Tokenizer, Tokenizer], rate: float
) -> None:
    plain, compiled = pair
    prose = "zq\n" + PROSE.replace("'", "").replace("!", "")  # one family lacks these
    wanted = plain.encode(prose, dropout=rate, seed=3)
    found: list[list[int]] = []

    def encode() -> None:
        found.append(compiled.encode(prose, dropout=rate, seed=3))

    threads = [threading.Thread(target=encode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 8
    assert pickle.loads(pickle.dumps(compiled)).encode(prose, dropout=rate, seed=3) == wanted


def test_a_little_text_and_what_merges_nothing_stay_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not load(byte_level(), tmp_path).use_compiled(100)
    assert not train_char(["hug"]).use_compiled(MUCH)
    monkeypatch.setenv("MLXGPT_KERNELS", "off")
    assert not load(byte_level(), tmp_path).use_compiled(MUCH)


def test_what_is_too_large_for_the_kernels_stays_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxgpt.text.bulk_encoder.MOST_MERGES", 1)
    tokenizer = load(byte_level(), tmp_path)
    assert not tokenizer.use_compiled(MUCH)
    assert tokenizer.decode(tokenizer.encode_array(PROSE).tolist()) == PROSE


def test_dropout_is_refused_where_nothing_is_merged() -> None:
    char = train_char(["hug"])
    assert not char.supports_dropout
    with pytest.raises(TokenizerError, match="there are no merges to drop"):
        char.encode("hug", dropout=0.1)
    with pytest.raises(TokenizerError, match="there are no merges to drop"):
        char.encode_array("hug", dropout=0.1)


@given(st.text("▁aé中 \n", max_size=30), st.sampled_from(["▁", "▁a", "▁中é"]))
def test_ends_before_markers_are_those_of_the_expression(text: str, joined: str) -> None:
    border = SpaceBorder("▁", joined)
    words = border.split(text) if text else []
    lengths = [len(word.encode("utf-8")) for word in words]
    ends = ends_at_border(text.encode("utf-8"), border)
    assert ends.tolist() == np.cumsum(lengths).tolist()
