"""Streamed windows: the text from a drawn byte on, never short, a function of seed and number."""

import json
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_tokenizers import ByteTokenizer, PairTokenizer, RefusingTokenizer

from mlxgpt.data import Prefetcher, StreamingWindows, TextMap
from mlxgpt.data.streaming import MARGIN
from mlxgpt.errors import ConfigError, DataError
from mlxgpt.seeding import derive
from mlxgpt.text import Tokenizer, train_bpe

PAIRS = PairTokenizer()

LETTERS = st.sampled_from("abcd eé中😀\n")
TEXTS = st.builds(str.__mul__, st.text(LETTERS, min_size=1, max_size=30), st.integers(1, 60))
DOCUMENTS = st.lists(TEXTS, min_size=1, max_size=5)
RATES = st.sampled_from([0.0, 0.1, 0.5, 1.0]) | st.floats(0, 1)


def text_map(*documents: str, fingerprint: str = "x") -> TextMap:
    raw = [d.encode() for d in documents]
    ends = np.cumsum([len(r) for r in raw], dtype=np.int64)
    return TextMap(np.frombuffer(b"".join(raw), np.uint8), ends, fingerprint)


def windows(*documents: str, context: int = 16, **settings: object) -> StreamingWindows:
    arguments = {"tokenizer": PAIRS, "batch_size": 1, "seed": 0} | settings
    return StreamingWindows(text_map(*documents), context=context, **arguments)


def row(source: StreamingWindows, window: int) -> np.ndarray:
    """Return the T + 1 ids of a window of a source with rows of one."""
    batch = source.batch(window)
    assert np.array_equal(batch.input_ids[:, 1:], batch.targets[:, :-1])
    assert batch.loss_weights.all()
    return np.concatenate([batch.input_ids[0], batch.targets[0, -1:]])


def start_of(documents: list[str], seed: int, window: int) -> tuple[int, int]:
    """Return the document and the byte in it where a window begins, by counting characters."""
    drawn = derive(seed, "stream-window", window) % sum(len(d.encode()) for d in documents)
    passed = 0
    for number, document in enumerate(documents):
        inside = 0
        for character in document:
            size = len(character.encode())
            if passed + inside + size > drawn:
                return number, inside
            inside += size
        passed += inside
    raise AssertionError("beyond the text")


def parts(documents: list[str], seed: int, window: int) -> Iterator[str]:
    """Yield the pieces of text that follow each other in a window, without an end."""
    number, inside = start_of(documents, seed, window)
    yield documents[number].encode()[inside:].decode()
    while True:
        number = (number + 1) % len(documents)
        yield documents[number]


@given(DOCUMENTS, st.integers(1, 70), RATES, st.integers(0, 3), st.integers(0, 99))
def test_a_window_spells_the_text_from_its_byte_on_and_is_never_short(
    documents: list[str], context: int, rate: float, seed: int, window: int
) -> None:
    source = windows(*documents, context=context, dropout=rate, seed=seed)
    ids = row(source, window)
    assert ids.shape == (context + 1,)
    spelled = PAIRS.spell(ids)
    expected = b""
    for text in parts(documents, seed, window):
        expected += text.encode() + b"\xff"
        if len(expected) > len(spelled):
            break
    assert expected.startswith(spelled)


@given(DOCUMENTS, st.integers(1, 70), RATES, st.integers(0, 99))
def test_each_document_of_a_window_is_encoded_by_itself_and_with_a_seed_of_its_own(
    documents: list[str], context: int, rate: float, window: int
) -> None:
    expected: list[int] = []
    for number, text in enumerate(parts(documents, 7, window)):
        seed = derive(7, "bpe-dropout", window, number)
        expected += [*PAIRS.encode_array(text, dropout=rate, seed=seed).tolist(), PAIRS.eot_id]
        if len(expected) > context:
            break
    source = windows(*documents, context=context, dropout=rate, seed=7)
    assert row(source, window).tolist() == expected[: context + 1]


@cache
def learned() -> Tokenizer:
    return train_bpe(["the cat sat on the mat while one dog ran to see the other cats eat"], 300)


@dataclass(frozen=True)
class FromTheRight(PairTokenizer):
    """Pairs letters from the end of a word on, so that a torn word has other ids throughout."""

    def _encode_word(self, word: bytes, position: int, dropout: float, seed: int) -> list[int]:
        turned = super()._encode_word(word[::-1], position, dropout, seed)
        pairs = [divmod(i - 256, 26) for i in turned]
        return [
            i if i < 256 else 256 + b * 26 + a for i, (a, b) in zip(turned, pairs, strict=True)
        ][::-1]


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("tokenizer", [learned(), FromTheRight()])
def test_where_the_text_is_cut_for_encoding_leaves_no_trace(
    tokenizer: Tokenizer, rate: float
) -> None:
    """With words of up to `MARGIN` bytes, ids are those of a text that is not cut at all."""
    draw = np.random.default_rng(0)
    words = ["the", "see" * 40, "t" * 115, "while" * 22]
    text = " ".join(draw.choice(words, 400))
    source = windows(text, tokenizer=tokenizer, context=150, dropout=rate)
    usual = source.bytes_per_token
    for window in range(5):
        seed = derive(0, "bpe-dropout", window, 0)
        rest = next(parts([text], 0, window))
        whole = tokenizer.encode_array(rest, dropout=rate, seed=seed)[:151]
        for guess in (0.01, *np.linspace(0.4 * usual, 0.9 * usual, 16), 5 * usual):
            source.bytes_per_token = float(guess)
            assert np.array_equal(row(source, window)[: len(whole)], whole)


@pytest.mark.slow
def test_compiled_code_in_many_threads_gives_the_same_windows() -> None:
    words = ["the", "cats", " ", "others", "see" * 30, "中文", "😀", "\n\n", "1234", "don't"]
    text = " ".join(np.random.default_rng(0).choice(words, 3000))
    plain, fast = (pickle.loads(pickle.dumps(learned())) for _ in range(2))
    if not fast.use_compiled(1 << 40):
        pytest.skip("numba cannot be imported here")
    slow = windows(text, text, tokenizer=plain, batch_size=4, context=100, dropout=0.2)
    quick = windows(text, text, tokenizer=fast, batch_size=4, context=100, dropout=0.2)
    with Prefetcher(quick.batch, range(40), workers=8, ahead=16) as batches:
        for step, batch in enumerate(batches):
            assert np.array_equal(batch.targets, slow.batch(step).targets)


STRANGE = {
    "emoji": ["😀👩‍👩‍👧🏽" * 400],
    "one endless word": ["ab" * 5000],
    "white space": [" " * 3000 + "\n" * 3000],
    "one character": ["中"],
    "documents of one character": list("ab中😀é" * 20),
    "a huge and a tiny one": ["the cat sat on the mat " * 300, "x"],
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_no_text_is_too_strange(name: str, rate: float) -> None:
    documents, tokenizer = STRANGE[name], learned()
    for context in (1, 7, 200):
        source = windows(*documents, tokenizer=tokenizer, context=context, dropout=rate)
        for window in range(10):
            ids = row(source, window).tolist()
            assert len(ids) == context + 1
            spelled = b"".join(
                b"\xff" if i == tokenizer.eot_id else tokenizer.token_bytes(i) for i in ids
            )
            expected = b""
            for text in parts(documents, 0, window):
                expected += text.encode() + b"\xff"
                if len(expected) >= len(spelled):
                    break
            assert expected.startswith(spelled)


def test_the_work_for_a_window_does_not_grow_with_the_document() -> None:
    seen: list[int] = []

    @dataclass(frozen=True)
    class Counting(PairTokenizer):
        def encode_array(self, text: str, *, dropout: float = 0.0, seed: int = 0) -> np.ndarray:
            seen.append(len(text))
            return super().encode_array(text, dropout=dropout, seed=seed)

    source = windows("the cat " * 400_000, tokenizer=Counting(), context=100, dropout=0.1)
    seen.clear()
    source.batch(5)
    assert sum(seen) < 2 * 100 * 2 + 4 * MARGIN
    source.bytes_per_token = 0.2  # too low a guess
    source.batch(5)
    assert sum(seen) < 8 * 100 * 2 + 8 * MARGIN


@pytest.mark.parametrize("tokenizer", [PAIRS, learned()])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_b13_the_same_text_is_cut_anew_in_each_window_with_dropout_only(
    tokenizer: Tokenizer, rate: float
) -> None:
    documents = ["the cat sees the other dog"]
    source = windows(*documents, tokenizer=tokenizer, context=25, dropout=rate)
    found: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for window in range(600):
        ids = row(source, window).tolist()
        ids = ids[: [*ids, tokenizer.eot_id].index(tokenizer.eot_id)]
        found.setdefault(start_of(documents, 0, window), set()).add(tuple(ids))
    assert len(found) == 26
    assert len(found[0, 0]) == 1 if rate == 0 else len(found[0, 0]) > 10


def test_equal_documents_of_one_window_are_cut_differently() -> None:
    source = windows("abcdefgh", context=600, dropout=0.5)
    pieces = " ".join(map(str, row(source, 0))).split(f" {PAIRS.eot_id} ")
    assert len(set(pieces[1:-1])) > 5


def test_every_byte_is_as_likely_to_be_the_first() -> None:
    text = "".join(map(chr, range(40, 80)))
    source = windows(text, tokenizer=ByteTokenizer(), context=1)
    counts = Counter(int(source.batch(i).input_ids[0, 0]) for i in range(8000))
    assert set(counts) == set(range(40, 80))
    assert sum((n - 200) ** 2 / 200 for n in counts.values()) < 39 + 6 * (2 * 39) ** 0.5


@given(DOCUMENTS, st.integers(1, 3), st.integers(1, 2), st.integers(0, 9))
def test_ranks_together_see_what_one_would(
    documents: list[str], world: int, rows: int, step: int
) -> None:
    settings = {"dropout": 0.3, "seed": 5}
    whole = windows(*documents, batch_size=rows * world, **settings).batch(step)
    ids = [
        windows(*documents, batch_size=rows, rank=rank, world_size=world, **settings)
        .batch(step)
        .targets
        for rank in range(world)
    ]
    assert np.array_equal(np.concatenate(ids), whole.targets)
    single = windows(*documents, **settings)
    for r in range(rows * world):
        assert np.array_equal(single.batch(step * rows * world + r).targets[0], whole.targets[r])


def test_b26_a_new_process_goes_on_exactly() -> None:
    code = (
        "import json; from test_streaming import windows;"
        "b = windows('the cat sat ' * 99, 'on the mat', batch_size=3, dropout=0.2, seed=7);"
        "print(json.dumps([b.batch(s).targets.tolist() for s in range(17, 40)]))"
    )
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, stdout=-1, check=True)
    mine = windows("the cat sat " * 99, "on the mat", batch_size=3, dropout=0.2, seed=7)
    assert json.loads(done.stdout) == [mine.batch(s).targets.tolist() for s in range(17, 40)]


def test_b25_steps_go_on_for_ever_and_their_passes_are_counted() -> None:
    source = windows("ab" * 800, context=40, batch_size=5)
    assert source.bytes_per_token == 2.0
    assert source.epoch(0) == 0
    assert source.epoch(8) == pytest.approx(2 * 800 / 801)
    assert source.batch(10_000).shape == (5, 40)


def test_b26_what_the_sequence_depends_on_is_told_apart() -> None:
    def identity(fingerprint: str = "x", **changes: object) -> str:
        arguments = {"tokenizer": PAIRS, "batch_size": 4, "context": 8, "seed": 0} | changes
        return json.dumps(
            StreamingWindows(text_map("abc", fingerprint=fingerprint), **arguments).identity
        )

    same = identity()
    assert identity(batch_size=2, rank=1, world_size=2) == same
    assert identity("other") != same
    for change in (
        {"tokenizer": ByteTokenizer()},
        {"batch_size": 5},
        {"context": 9},
        {"seed": 1},
        {"dropout": 0.1},
    ):
        assert identity(**change) != same


def test_without_an_end_token_documents_follow_each_other_but_do_not_merge() -> None:
    tokenizer = PairTokenizer(eot_id=None)
    ids = row(windows("abc", "def", tokenizer=tokenizer, context=30), 1)
    assert tokenizer.spell(ids) in b"abcdef" * 20
    crossing = {256 + (ord(a) - 97) * 26 + ord(b) - 97 for a, b in ("cd", "fa")}
    assert not crossing & set(ids.tolist())


def test_errors_tell_the_row_and_the_place() -> None:
    documents = ("fine " * 300, "a bad one", "fine " * 300)
    source = windows(*documents, tokenizer=RefusingTokenizer(), batch_size=8, context=2000)
    place = r"^row \d of batch 3: document 2 of 3 of the training text, from its byte 0 on: this"
    with pytest.raises(DataError, match=place):
        source.batch(3)
    broken = windows("fine", tokenizer=RefusingTokenizer(), context=8)
    broken.text = text_map("broken")
    with pytest.raises(
        RuntimeError, match=r"row 0 of batch 0: .* byte \d on: encoding failed: Key"
    ):
        for step in range(20):
            broken.batch(step)
    with pytest.raises(DataError, match="a first look: document 1 of 1"):
        windows("a bad one", tokenizer=RefusingTokenizer())


def test_a_tokenizer_that_gives_nothing_is_refused_and_not_waited_for() -> None:
    @dataclass(frozen=True)
    class Mute(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return []

    with pytest.raises(DataError, match="not a single id"):
        windows("a", "b", tokenizer=Mute(eot_id=None)).batch(0)
    assert set(row(windows("a", "b", tokenizer=Mute()), 0)) == {256}


def test_impossible_settings_are_refused() -> None:
    for wrong in ({"batch_size": 0}, {"context": 0}, {"rank": 1}, {"dropout": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            windows("abc", **wrong)
    with pytest.raises(ConfigError, match="can do no BPE-dropout"):
        windows("abc", tokenizer=ByteTokenizer(), dropout=0.1)
    with pytest.raises(ValueError, match="not negative"):
        windows("abc").batch(-1)
