import io
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlxgpt.checkpoint import read_json, save_model, write_json
from mlxgpt.cli.app import main
from mlxgpt.infer import SamplingParams, generate
from mlxgpt.model import GPT
from mlxgpt.text import train_bpe, train_char

TEXT = "the cat sat on the mat\n"


@dataclass
class Ran:
    code: int
    out: str
    err: str

    def refused(self) -> str:
        """Check that it was refused as a mistake of the user: one line, and no output."""
        assert self.code == 2, self.err
        assert self.out == ""
        assert self.err.startswith("mlxgpt: error: ")
        assert self.err.count("\n") == 1
        return self.err


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the command line in this process, with `stdin` as standard input."""

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["mlxgpt", "generate", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    logger = logging.getLogger("mlxgpt")
    before = logger.handlers[:]
    yield run
    logger.handlers[:] = before


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, random_gpt: Callable[..., GPT]) -> Path:
    tokenizer = train_char([TEXT])
    path = tmp_path_factory.mktemp("model")
    save_model(path, random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    return path


def test_text_goes_to_standard_output_and_the_report_to_standard_error(
    run: Run, folder: Path, random_gpt: Callable[..., GPT]
) -> None:
    ran = run(folder, "--prompt", "the", "--tokens", 12, "--seed", 5, "--top-k", 20)
    assert ran.code == 0
    tokenizer = train_char([TEXT])
    assert tokenizer.eot_id is not None
    model = random_gpt(vocab_size=tokenizer.vocab_size)
    ids = written_ids(model, "the", [tokenizer.eot_id], top_k=20, max_tokens=12, seed=5)
    assert ran.out == "the" + tokenizer.decode(ids, skip_special=True) + "\n"
    assert ran.err.startswith(f"[3 prompt tokens, {len(ids)} written; first after ")
    assert ran.err.endswith("seed 5]\n")
    assert ran.err.count("\n") == 1
    again = run(folder, "-p", "the", "--tokens", 12, "--seed", 5, "--top-k", 20)
    assert again.out == ran.out
    assert run(folder, "-p", "the", "--tokens", 12, "--seed", 6).out != ran.out


def test_the_prompt_may_come_from_standard_input(run: Run, folder: Path) -> None:
    piped = run(folder, "-p", "-", "--tokens", 5, "--seed", 1, stdin=b"the cat")
    assert piped.code == 0
    assert piped.out.startswith("the cat")
    assert piped.out == run(folder, "-p", "the cat", "--tokens", 5, "--seed", 1).out
    assert "byte 1" in run(folder, "-p", "-", stdin=b"a\xffb").refused()


@pytest.mark.parametrize(
    "prompt", ["", "ďábelské 😀 中", "\x00", "<|endoftext|>", "x" * 100, " \n", "\u2028"]
)
def test_any_prompt_is_continued(prompt: str, run: Run, folder: Path) -> None:
    ran = run(folder, "-p", "-", "--tokens", 4, "--seed", 1, stdin=prompt.encode())
    assert ran.code == 0, ran.err
    assert ran.out.startswith(prompt)
    written = len(train_char([TEXT]).encode(prompt)) or 1
    assert f"[{written} prompt tokens, " in ran.err


def test_a_prompt_that_is_not_unicode_is_refused(run: Run, folder: Path) -> None:
    ran = run(folder, "-p", "a\udcffb", "--tokens", 2, "--seed", 1)
    assert (ran.code, ran.out) == (2, "")
    assert "the text on the command line is not UTF-8" in ran.err


def test_no_tokens_gives_the_prompt_alone(run: Run, folder: Path) -> None:
    ran = run(folder, "-p", "the", "--tokens", 0)
    assert (ran.code, ran.out) == (0, "the\n")


def test_zero_temperature_needs_no_seed(run: Run, folder: Path) -> None:
    texts = {run(folder, "-p", "t", "--tokens", 6, "--temperature", 0).out for _ in range(2)}
    assert len(texts) == 1


def test_without_a_seed_it_is_another_text_each_time_and_can_be_had_again(
    run: Run, folder: Path
) -> None:
    ran = [run(folder, "-p", "t", "--tokens", 20, "--temperature", 2) for _ in range(2)]
    assert ran[0].out != ran[1].out
    seed = ran[0].err.split("seed ")[1].removesuffix("]\n")
    again = run(folder, "-p", "t", "--tokens", 20, "--temperature", 2, "--seed", seed)
    assert again.out == ran[0].out


def test_bad_values_are_refused_before_anything_is_loaded(run: Run, tmp_path: Path) -> None:
    for option, value in (
        ("--temperature", "-1"), ("--temperature", "nan"), ("--temperature", "inf"),
        ("--top-p", "2"), ("--top-p", "0"), ("--top-k", "0"), ("--min-p", "-0.5"),
        ("--tokens", "-1"),
    ):  # fmt: skip
        message = run(tmp_path / "none", option, value).refused()
        assert "does not exist" not in message
    for option, value in (("--tokens", "many"), ("--top-k", "1.5"), ("--nonsense", "1")):
        assert option in run(tmp_path / "none", option, value).refused()
    assert "argument" in run().refused()


def test_what_is_no_model_is_said_in_one_line(run: Run, folder: Path, tmp_path: Path) -> None:
    assert "does not exist" in run(tmp_path / "none").refused()
    assert "is a file" in run(folder / "config.json").refused()
    assert "no config.json" in run(tmp_path).refused()
    for name in ("config.json", "tokenizer.json", "model.safetensors", "generation_config.json"):
        broken = tmp_path / name
        broken.mkdir()
        for file in folder.iterdir():
            content = file.read_bytes()
            (broken / file.name).write_bytes(content[:-9] if file.name == name else content)
        assert name in run(broken).refused()


def written_ids(model: GPT, prompt: str, stops: list[int], **settings: int) -> list[int]:
    params = SamplingParams(temperature=0.8, **settings)
    ids = train_char([TEXT]).encode(prompt)
    return [t.token_id for t in generate(model, ids, params, stop_ids=stops)]


@pytest.mark.parametrize("where", ["config.json", "generation_config.json"])
def test_generation_stops_at_any_stop_id(
    where: str, run: Run, folder: Path, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model = random_gpt(vocab_size=train_char([TEXT]).vocab_size)
    whole = written_ids(model, "the", [], max_tokens=30, seed=2)
    stop = next(i for i in whole[5:] if i not in whole[:5])
    write_json(tmp_path / where, read_json(tmp_path / where) | {"eos_token_id": [stop, 10**6]})
    ran = run(tmp_path, "-p", "the", "--tokens", 30, "--seed", 2)
    count = whole.index(stop) + 1
    assert 5 < count < 30
    assert f"{count} written" in ran.err


def test_a_padded_vocabulary_writes_no_padding(
    run: Run, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    tokenizer = train_bpe([TEXT], 260)
    save_model(tmp_path, random_gpt(vocab_size=5000), tokenizer)
    ran = run(tmp_path, "-p", "the", "--tokens", 40, "--seed", 1)
    assert ran.code == 0, ran.err


@pytest.mark.slow
def test_it_works_as_a_command(folder: Path) -> None:
    def command(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-c", "from mlxgpt.cli.app import main; main()", *arguments],
            input=stdin,
            capture_output=True,
            check=False,
        )

    ran = command("generate", str(folder), "-p", "-", "--tokens", "8", stdin="č".encode())
    assert ran.returncode == 0
    assert ran.stdout.startswith("č".encode())
    assert ran.stderr.startswith(b"[")
    ran = command("generate", str(folder / "none"))
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(b"mlxgpt: error: ")
    assert ran.stderr.count(b"\n") == 1


def test_a_space_after_the_prompt_is_kept(run: Run, shared_data: Path) -> None:
    """The tokens of SentencePiece carry the space in front of a word."""
    model = shared_data / "checkpoints" / "stories260K-hf"
    said = run(model, "-p", "Once", "--temperature", 0, "--tokens", 6)
    assert said.out.startswith("Once upon a time, there was")


def test_a_prompt_beyond_the_context_is_told_of(
    run: Run, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    tokenizer = train_char([TEXT])
    save_model(tmp_path / "m", random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    said = run(tmp_path / "m", "-p", TEXT, "--tokens", 1)
    assert "note: the prompt has 23 tokens; the model sees the last 16 at a time" in said.err
    assert "note" not in run(tmp_path / "m", "-p", TEXT[:16], "--tokens", 1).err
