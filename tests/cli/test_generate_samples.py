"""`mlxgpt generate` of one prompt: several texts, stop texts, penalties, drafts, small caches."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from generation_runs import (
    SPECIAL,
    Run,
    running,
    save_with_template,
    small_tokenizer,
    written,
)

from mlxgpt.cli.generate.single import TextsInTurn
from mlxgpt.infer.engine.completion import Output
from mlxgpt.infer.quantized_kv_cache import QuantizedKVCache
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer, train_bpe

PARAMS = SamplingParams(temperature=0.8, max_tokens=12, seed=4)
FIXED = ("--tokens", 12, "--seed", 4)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with running("generate", monkeypatch, capsys) as run:
        yield run


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="module")
def network(random_gpt: Callable[..., GPT], tokenizer: Tokenizer) -> GPT:
    return random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=128)


@pytest.fixture(scope="module")
def model(network: GPT, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_template(tmp_path_factory.mktemp("model") / "m", network, tokenizer)


@pytest.fixture(scope="module")
def plain(network: GPT, tokenizer: Tokenizer) -> Callable[..., str]:
    """What the plain loop writes after "what"."""

    def plain(params: SamplingParams = PARAMS) -> str:
        return written(network, tokenizer, tokenizer.encode("what"), params)

    return plain


Plain = Callable[..., str]


def test_several_texts_each_with_a_seed_that_writes_it_alone(
    run: Run, model: Path, plain: Plain
) -> None:
    ran = run(model, "-p", "what", "-n", 3, *FIXED)
    expected = ""
    for i in range(3):
        own = replace(PARAMS, n=3).choice(i)
        expected += f"--- text {i + 1} of 3, seed {own.seed} ---\nwhat{plain(own)}\n"
        alone = run(model, "-p", "what", "--tokens", 12, "--seed", own.seed)
        assert alone.out == f"what{plain(own)}\n"
    assert (ran.code, ran.out) == (0, expected)
    assert len(set(expected.split("\n"))) > 6
    assert " written in 3 texts; first after " in ran.err
    chat = run(model, "-p", "what", "--chat", "-n", 2, *FIXED)
    assert chat.out.count("--- text ") == 2
    assert "what" not in chat.out.split("\n")[1]


def test_texts_are_printed_one_after_the_other_the_current_one_live() -> None:
    shown: list[str] = []

    def output(choice: int, text: str, reason: str | None = None) -> Output:
        return Output(0, choice, [1], text, None, reason)  # type: ignore[arg-type]

    texts = TextsInTurn(["A", "B", "C"], shown.append)
    for choice, text, reason, expected in (
        (0, "a", None, "Aa"), (1, "b", None, "Aa"), (2, "c", "stop", "Aa"),
        (1, "b", "length", "Aa"), (0, "a", "stop", "Aaa\nBbb\nCc\n"),
    ):  # fmt: skip
        texts.take(output(choice, text, reason))
        assert "".join(shown) == expected


def test_a_stop_text_ends_the_text_before_it(run: Run, model: Path, plain: Plain) -> None:
    text = plain()
    place = next(i for i in range(2, len(text)) if text[i : i + 2] not in text[: i + 1])
    ran = run(model, "-p", "what", *FIXED, "--stop", "never", "--stop", text[place : place + 2])
    assert (ran.code, ran.out) == (0, f"what{text[:place]}\n")
    assert "stop" in run(model, "-p", "what", "--stop", "").refused()
    assert "not UTF-8" in run(model, "-p", "what", "--stop", "\udcff").refused()


@pytest.mark.parametrize(
    ("option", "value"),
    [("repetition_penalty", 3.0), ("presence_penalty", 5.0), ("frequency_penalty", 5.0)],
)
def test_penalties(option: str, value: float, run: Run, model: Path, plain: Plain) -> None:
    ran = run(model, "-p", "what", *FIXED, f"--{option.replace('_', '-')}", value)
    assert ran.out == f"what{plain(replace(PARAMS, **{option: value}))}\n"
    assert ran.out != f"what{plain()}\n"


@pytest.mark.parametrize("draft", ["ngram", "model"])
def test_a_draft_changes_the_speed_alone(draft: str, run: Run, model: Path, plain: Plain) -> None:
    name = model if draft == "model" else draft
    greedy = ("--tokens", 40, "--temperature", 0)
    ran = run(model, "-p", "what", *greedy, "--draft", name, "--num-draft-tokens", 3)
    assert ran.out == f"what{plain(replace(PARAMS, temperature=0.0, max_tokens=40))}\n"
    assert " % of guesses kept, " in ran.err
    assert " tokens a pass; seed " in ran.err
    assert "guesses" not in run(model, "-p", "what", *greedy).err


def test_a_draft_with_another_vocabulary_is_refused(
    run: Run, model: Path, random_gpt: Callable[..., GPT], tmp_path: Path
) -> None:
    for corpus, size in (("quite another text", 280), ("user assistant system what is it", 270)):
        tokenizer = train_bpe([corpus], size, special_tokens=SPECIAL)
        other = save_with_template(
            tmp_path / str(size), random_gpt(vocab_size=tokenizer.vocab_size), tokenizer
        )
        reason = run(model, "-p", "what", "--draft", other).refused()
        assert "the draft model has another vocabulary: id " in reason
    assert "does not exist" in run(model, "-p", "what", "--draft", tmp_path / "none").refused()
    assert "has no effect without --draft" in run(model, "--num-draft-tokens", 2).refused()


@pytest.mark.parametrize("bits", [8, 4])
def test_keys_and_values_in_few_bits(
    bits: int, run: Run, random_gpt: Callable[..., GPT], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    network = random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=128, head_dim=32)
    model = save_with_template(tmp_path / "m", network, tokenizer)
    ids = tokenizer.encode("what")
    cache = QuantizedKVCache(2, 128, head_dim=32, bits=bits)
    logits, expected = network(mx.array([ids]), cache), []
    for _ in range(12):
        expected.append(int(logits[0, -1].argmax().item()))
        logits = network(mx.array([expected[-1:]]), cache)
    greedy = ("-p", "what", "--tokens", 12, "--temperature", 0)
    ran = run(model, *greedy, "--kv-bits", bits)
    assert ran.out == "what" + tokenizer.decode(expected, skip_special=True) + "\n"
    if bits == 4:
        assert ran.out != run(model, *greedy).out


def test_heads_that_cannot_be_packed_are_refused(run: Run, model: Path) -> None:
    assert "heads of 8 cannot be packed" in run(model, "-p", "a", "--kv-bits", 8).refused()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--kv-bits", "3"), "--kv-bits must be 8 or 4; got 3"),
        (("--kv-bits", "8", "-n", "2"), "does not go with --num-samples"),
        (("--kv-bits", "8", "--draft", "ngram"), "does not go with --draft"),
        (("--kv-bits", "8", "--kv-memory", "1GB"), "does not go with --kv-memory"),
        (("--kv-memory", "x"), "--kv-memory wants bytes, or a size such as 2GB or 512MiB"),
        (("-n", "0"), "--num-samples"),
        (("--repetition-penalty", "0"), "repetition_penalty"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[str, ...], reason: str, run: Run, model: Path
) -> None:
    assert reason in run(model, "-p", "a", *arguments).refused()
