"""Documents -> tokenizer: closed under bytes, the same whatever the order, nothing invented."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import TokenizerError
from mlxgpt.text import END_OF_TEXT, Tokenizer, train_bpe, train_char
from mlxgpt.text.bpe.splitting import PATTERNS, Splitter
from mlxgpt.text.bpe.word_counts import as_bytes, count_words

LINES = [f"the {word} of {n} hugs, don't\n" for n, word in enumerate(["hug", "pug", "bun"] * 9)]


def tokens_of(tokenizer: Tokenizer) -> list[bytes]:
    return [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]


def test_characters_never_seen_in_training_survive() -> None:
    tokenizer = train_bpe(["hug hug pug"], 260)
    for byte in range(256):
        ids = tokenizer.encode(bytes([byte]).decode("latin-1"))
        assert tokenizer.decode(ids) == bytes([byte]).decode("latin-1")
    text = "mug 😀 \x00 é"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert {bytes([byte]) for byte in range(256)} <= set(tokens_of(tokenizer))


def test_ids_are_bytes_then_merges_then_specials() -> None:
    tokenizer = train_bpe(["hug hug pug"], 262, special_tokens=[END_OF_TEXT, "<|pad|>"])
    assert tokenizer.vocab_size == 262
    assert tokens_of(tokenizer)[:2] == [b"!", b'"']
    # Of the pairs that occur once, (p, ug) has smaller ids than (space, hug).
    learned = [b"ug", b"hug", b"pug", b" hug"]
    assert tokens_of(tokenizer)[256:] == [*learned, b"<|endoftext|>", b"<|pad|>"]
    assert tokenizer.special_tokens == {END_OF_TEXT: 260, "<|pad|>": 261}
    assert tokenizer.eot_id == 260


def test_equally_frequent_pairs_are_taken_in_the_order_of_their_ids() -> None:
    for text in ("bbbaaaddddcccc", "aaabbbccccdddd"):
        tokenizer = train_bpe([text], 261, special_tokens=[])
        assert tokens_of(tokenizer)[256:258] == [b"cc", b"dd"]


def test_documents_in_any_order_give_the_same_tokenizer() -> None:
    shuffled = list(LINES)
    random.Random(3).shuffle(shuffled)
    assert train_bpe(LINES, 320) == train_bpe(shuffled, 320)
    assert train_char(LINES) == train_char(shuffled)


@pytest.mark.slow
def test_the_hash_seed_of_python_changes_no_byte_of_the_file(tmp_path: Path) -> None:
    program = (
        "import sys; from mlxgpt.text import train_bpe;"
        "lines = [f'{a}{b} {b}{a}' for a in 'abcdef' for b in 'uvwxyz'];"
        "train_bpe(lines, 300).save(sys.argv[1])"
    )
    for seed in ("0", "1"):
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / seed)],
            env={"PYTHONHASHSEED": seed},
            check=True,
            cwd=Path(__file__).parents[2],
        )
    files = [(tmp_path / seed / "tokenizer.json").read_bytes() for seed in ("0", "1")]
    assert files[0] == files[1]


@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "qwen2", r"\p{L}+"])
def test_no_token_crosses_the_border_of_a_word(pattern: str) -> None:
    tokenizer = train_bpe(LINES, 400, pattern=pattern)
    splitter = Splitter([PATTERNS.get(pattern, pattern)])
    seen = {word for line in LINES for word in splitter.split(line)}
    for token in tokens_of(tokenizer)[256:-1]:
        assert any(token.decode() in word for word in seen)
    assert tokenizer.patterns == (PATTERNS.get(pattern, pattern),)


def test_specials_in_the_documents_are_borders_and_never_learned() -> None:
    documents = ["<|eot|>".join(["ab"] * 1001)]
    tokenizer = train_bpe(documents, 400, special_tokens=["<|eot|>"])
    ordinary = tokens_of(tokenizer)[:-1]
    assert ordinary[256:] == [b"ab"], "something of the special, or across it, was learned"
    assert len(set(ordinary)) == len(ordinary)
    assert tokenizer.special_tokens == {"<|eot|>": 257}
    assert tokenizer.vocab_size == 258


def test_no_ordinary_token_has_the_bytes_of_a_special() -> None:
    # Cut from the document the special is gone, but "<|e" + "ot|>" reappears around the cut.
    documents = ["xx<|eot|>xx", "hello"] * 5
    tokenizer = train_bpe(documents, 400, special_tokens=["hello", "ell"], pattern=r"[a-z]+")
    assert b"hello" not in tokens_of(tokenizer)[:-2]
    other = train_bpe(["Ġhug hug hug"], 300, special_tokens=["Ġhug"])
    assert b" hug" not in tokens_of(other)[:-1], "in the file it would be written as the special"


def test_training_stops_early_instead_of_inventing_merges() -> None:
    tokenizer = train_bpe(["hug"], 5000)
    assert tokenizer.vocab_size == 256 + 2 + 1
    assert tokenizer.num_merges == 2
    assert train_bpe(["hug hug bun"], 5000, min_frequency=2).vocab_size == 256 + 2 + 1
    assert train_bpe([], 5000).vocab_size == 257


def test_max_token_length_is_in_bytes() -> None:
    tokenizer = train_bpe(["ééééé aaaaaaaaa"], 400, max_token_length=4)
    lengths = [len(token) for token in tokens_of(tokenizer)[256:-1]]
    assert max(lengths) == 4
    assert "éé".encode() in tokens_of(tokenizer)


@pytest.mark.slow
def test_a_long_line_is_used_to_its_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(f"word{i % 977}" for i in range(260_000))
    assert "\n" not in text
    assert len(text) > 2_000_000
    for held_at_once in (len(text), 1000):
        monkeypatch.setattr("mlxgpt.text.bpe.word_counts._LISTED", held_at_once)
        counts = count_words([text], Splitter([PATTERNS["gpt2"]]))
        assert sum(len(word) * count for word, count in counts.items()) == len(text)
        assert counts[" word"] == 259_999
    assert {b" word", b"976"} <= set(tokens_of(train_bpe([text], 2000)))


@pytest.mark.parametrize("pattern", ["gpt2", "llama3", r"\w+"])
def test_a_document_in_pieces_is_the_same_document(pattern: str) -> None:
    documents = ["".join(LINES), "<|endoftext|>x", "👍 don't"]
    pieces = [iter(LINES), ["<|endof", "text|>", "x"], ["\ud83d", "\udc4d don'", "", "t"]]
    assert train_bpe(pieces, 400, pattern=pattern) == train_bpe(documents, 400, pattern=pattern)
    assert train_char(map(iter, documents)) == train_char(documents)


@given(st.text(max_size=60), st.sampled_from([*PATTERNS, r"\d+|(a)(b)", "b*"]))
def test_listing_and_iterating_words_agree_and_lose_nothing(text: str, pattern: str) -> None:
    splitter = Splitter([PATTERNS.get(pattern, pattern)])
    words = splitter.split(text)
    assert "".join(words) == text
    assert all(words)
    assert list(splitter.iterate(text)) == words
    counts = count_words([text, text], splitter)
    assert counts == Counter({w: 2 * n for w, n in Counter(words).items()})
    assert as_bytes(counts) == {w.encode(): n for w, n in counts.items()}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 256}, "at least 257"),
        ({"vocab_size": 257, "special_tokens": ["<a>", "<b>"]}, "at least 258"),
        ({"special_tokens": ["<a>", "<a>"]}, "'<a>' is given twice"),
        ({"special_tokens": [""]}, "must be a text"),
        ({"special_tokens": ["\ud83d"]}, "must be a text"),
        ({"special_tokens": ["x"]}, "'x' is the name of a single byte"),
        ({"special_tokens": ["Ġ"]}, "'Ġ' is the name of a single byte"),
        ({"min_frequency": 0}, "min_frequency must be at least 1"),
        ({"max_token_length": 0}, "max_token_length must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"pattern": "(gpt2"}, "neither one of gpt2, llama3, qwen2 nor a regular expression"),
        ({"pattern": ""}, "pattern is empty"),
        ({"pattern": "a|\udce9"}, "pattern must be a text"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(TokenizerError, match=message.replace("(", r"\(")):
        train_bpe(["hug"], **{"vocab_size": 300, **settings})


@pytest.mark.parametrize("documents", ["one text", b"bytes"])
@pytest.mark.parametrize("train", [lambda d: train_bpe(d, 300), train_char])
def test_one_text_is_not_taken_for_many(train, documents) -> None:
    with pytest.raises(TokenizerError, match="several texts, got one"):
        train(documents)
