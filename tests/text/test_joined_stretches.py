"""The many short stretches between added tokens, encoded by few calls, have the same ids."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_files import added, byte_level

from mlxgpt.text import Tokenizer, bulk_encoder

RUNS = ("  ", "    ", "<é>")
PIECES = [*RUNS, " ", "\n", "hug", " pug", "don", "'", "t", "12", "345", "é", "日", "!", "a " * 20]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer whose added tokens are runs of spaces twice, the second with kernels."""
    folder = tmp_path_factory.mktemp("runs")
    content = byte_level()
    n = len(content["model"]["vocab"]) + len(content["added_tokens"])
    content["added_tokens"] += [added(run, n + i, special=False) for i, run in enumerate(RUNS)]
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    plain, compiled = Tokenizer.load(folder), Tokenizer.load(folder)
    assert compiled.use_compiled(10**9)
    return plain, compiled


@example("hug pug  hug    hug pug" * 9, 5, 0.3)
@given(TEXTS, st.sampled_from([1, 5, 30, 1 << 15]), st.sampled_from([0.0, 0.3]))
def test_ids_do_not_depend_on_what_is_joined(
    pair: tuple[Tokenizer, Tokenizer], text: str, group: int, rate: float
) -> None:
    plain, compiled = pair
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_encoder, "_GROUP", group)
        got = compiled.encode(text, dropout=rate, seed=7)
    assert got == plain.encode(text, dropout=rate, seed=7)


def test_a_page_of_short_lines_takes_few_calls(
    pair: tuple[Tokenizer, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, compiled = pair
    text = "    hug  pug\n" * 1000
    calls: list[int] = []
    encode = bulk_encoder.CompiledEncoder.encode

    def counted(self: bulk_encoder.CompiledEncoder, data: bytes, *rest: object) -> object:
        calls.append(len(data))
        return encode(self, data, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(bulk_encoder.CompiledEncoder, "encode", counted)
    assert compiled.encode(text) == plain.encode(text)
    assert len(calls) == 1


def test_long_stretches_are_not_joined() -> None:
    pieces = ["ab", "c" * bulk_encoder._GROUP, "d", "e"]
    assert list(bulk_encoder._grouped(pieces)) == [["ab"], [pieces[1]], ["d", "e"]]
    assert not list(bulk_encoder._grouped([]))
