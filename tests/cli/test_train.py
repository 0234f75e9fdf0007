"""`mlxgpt train` as it is typed: every option counts, and every mistake is one line."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typed_commands import Run, refused

from mlxgpt.checkpoint import load, save_model
from mlxgpt.cli import app as app_module
from mlxgpt.config import to_dict
from mlxgpt.errors import ConfigError
from mlxgpt.model import GPT
from mlxgpt.text import train_char
from mlxgpt.train import RunDirectory, TrainConfig

TINY = shlex.split(
    "--steps 6 --batch 4 --ctx 16 --n-layer 1 --n-head 2 --n-embd 16 --tokenizer char "
    "--eval-every 3 --set workers=1"
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "words.txt"
    file.write_text("the cat sat on the mat and saw a dog run by\n" * 40)
    return file


# Option, its value as typed -> the setting of run.yaml that it changes, and to what.
SETTINGS: dict[tuple[str, str], tuple[str, Any]] = {
    ("--corpus", "else.txt"): ("data.corpus", "else.txt"),
    ("--val-fraction", "0.2"): ("data.val_fraction", 0.2),
    ("--bpe-dropout", "0.1"): ("data.bpe_dropout", 0.1),
    ("--stream", ""): ("data.stream", True),
    ("--no-stream", ""): ("data.stream", False),
    ("--tokenizer", "char"): ("tokenizer.source", "char"),
    ("--vocab-size", "300"): ("tokenizer.vocab_size", 300),
    ("--ctx", "32"): ("model.max_seq_len", 32),
    ("--n-layer", "3"): ("model.n_layer", 3),
    ("--n-embd", "64"): ("model.n_embd", 64),
    ("--n-head", "8"): ("model.n_head", 8),
    ("--n-kv-head", "1"): ("model.n_kv_head", 1),
    ("--optimizer", "muon"): ("optimizer.name", "muon"),
    ("--max-lr", "1e-2"): ("optimizer.max_lr", 1e-2),
    ("--lr-schedule", "wsd"): ("optimizer.lr_schedule", "wsd"),
    ("--warmup", "7"): ("optimizer.warmup_steps", 7),
    ("--weight-decay", "0.3"): ("optimizer.weight_decay", 0.3),
    ("--steps", "77"): ("steps", 77),
    ("--batch", "5"): ("micro_batch_size", 5),
    ("--grad-accum", "2"): ("grad_accum_steps", 2),
    ("--dropout", "0.1"): ("dropout", 0.1),
    ("--dtype", "bfloat16"): ("dtype", "bfloat16"),
    ("--seed", "4"): ("seed", 4),
    ("--eval-every", "9"): ("eval_every", 9),
    ("--save-every", "11"): ("save_every", 11),
    ("--preset", "10m"): ("model.n_embd", 384),
    ("--set", "optimizer.beta2=0.95"): ("optimizer.beta2", 0.95),
    ("--config", "my.yaml"): ("optimizer.eps", 1e-5),
    ("-c", "my.yaml"): ("optimizer.eps", 1e-5),
}
OWN_TESTS = {"--out", "--resume", "--overwrite", "--init-from"}  # no setting, or several


def options() -> set[str]:
    command = typer.main.get_command(app_module.app).commands["train"]  # type: ignore[attr-defined]
    names = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    return names - {"--help", "-h"}


def test_every_option_is_in_the_table() -> None:
    assert options() == {option for option, _ in SETTINGS} | OWN_TESTS


class Seen(ConfigError):
    """Raised in place of the training, with the config that it would have had."""


@pytest.fixture
def config_of(mlxgpt: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainConfig]:
    seen: list[TrainConfig] = []

    def prepare(config: TrainConfig, progress: object) -> None:
        seen.append(config)
        raise Seen("seen")

    monkeypatch.setattr("mlxgpt.train.prepare_run", prepare)

    def get(*arguments: str) -> TrainConfig:
        refused(mlxgpt("train", *arguments), "seen")
        return seen.pop()

    return get


@pytest.mark.parametrize(("option", "value"), SETTINGS)
def test_every_option_changes_its_setting_and_no_other(
    config_of: Callable[..., TrainConfig], option: str, value: str
) -> None:
    Path("my.yaml").write_text("optimizer: {eps: 1e-5}\n")
    plain = flat(to_dict(config_of("--corpus", "words.txt")))
    arguments = [option, value] if value else [option]
    given = flat(to_dict(config_of("--corpus", "words.txt", *arguments)))
    setting, expected = SETTINGS[option, value]
    assert plain[setting] != expected
    assert given[setting] == expected
    changed = {name for name in plain if plain[name] != given[name]}
    derived = {"model.head_dim", "model.intermediate_size", "model.n_kv_head"}
    derived |= {"tokenizer.vocab_size", "tokenizer.pattern"}  # a bpe's
    derived |= {"optimizer.muon_lr", "optimizer.muon_momentum"}
    preset = (
        {"model.n_layer", "model.n_head", "model.max_seq_len"} if option == "--preset" else set()
    )
    assert changed - (derived - {setting}) - preset == {setting}


def test_init_from_brings_shape_and_tokenizer_unless_told_otherwise(
    mlxgpt: Run,
    config_of: Callable[..., TrainConfig],
    corpus: Path,
    random_gpt: Callable[..., GPT],
) -> None:
    save_model("base", random_gpt(vocab_size=300, n_layer=3, n_embd=48), train_char(["a"]))
    config = config_of("--corpus", corpus, "--init-from", "base")
    assert (config.init_from, config.tokenizer.source) == ("base", "base")
    assert (config.model.n_layer, config.model.n_embd, config.model.vocab_size) == (3, 48, 300)
    assert config_of("--corpus", corpus, "--init-from", "base", "--ctx", "7").model.max_seq_len == 7
    assert config_of("--corpus", corpus, "--init-from", "base", "--preset", "3m").model.n_layer == 6
    refused(mlxgpt("train", "--corpus", corpus, "--init-from", "none"), "none does not exist")


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = value
    return result


@pytest.mark.parametrize(
    ("option", "value"), [*SETTINGS, ("--out", "x"), ("--overwrite", ""), ("--init-from", "x")]
)
def test_no_option_goes_together_with_resume(mlxgpt: Run, option: str, value: str) -> None:
    arguments = [option, value] if value else [option]
    name = {"-c": "--config", "--no-stream": "--stream"}.get(option, option)
    refused(
        mlxgpt("train", "--resume", "r", *arguments), f"{name} cannot be combined with --resume"
    )


def test_a_run_from_nothing_to_a_model(mlxgpt: Run, corpus: Path) -> None:
    code, out, err = mlxgpt("train", "--corpus", corpus, *TINY)
    assert code == 0, err
    assert out == ""
    run = Path("runs/words-1")
    assert {p.name for p in run.iterdir()} >= {"run.yaml", "metrics.jsonl", "loss.png", "state"}
    assert load(run)[0].config.n_embd == 16
    assert "\x1b" not in err
    assert "\r" not in err
    assert max(map(len, err.splitlines())) < 160
    for words in (
        "model    runs/words-1",
        "next     mlxgpt generate runs/words-1",
        "validation loss",
    ):
        assert words in err
    assert err.count("validation loss") == 2
    assert mlxgpt("train", "--corpus", corpus, *TINY)[0] == 0
    assert Path("runs/words-2/model.safetensors").exists()
    config = RunDirectory(run).config(TrainConfig)
    letters = len(set(corpus.read_text()))
    assert (config.steps, config.model.vocab, config.workers) == (6, letters + 256 + 1, 1)


def test_the_written_config_gives_the_same_weights(mlxgpt: Run, corpus: Path) -> None:
    assert mlxgpt("train", "--corpus", corpus, *TINY, "--out", "a", "--dropout", "0.1")[0] == 0
    assert mlxgpt("train", "-c", "a/run.yaml", "--out", "b")[0] == 0
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()


def test_resume_says_when_there_is_nothing_to_do(mlxgpt: Run, corpus: Path) -> None:
    mlxgpt("train", "--corpus", corpus, *TINY, "--out", "a")
    before = {p: p.read_bytes() for p in Path("a").rglob("*") if p.is_file()}
    code, _, err = mlxgpt("train", "--resume", "a")
    assert code == 0
    assert "nothing to do: all 6 steps of a are done" in err
    assert before == {p: p.read_bytes() for p in Path("a").rglob("*") if p.is_file()}


def test_overwrite_replaces_a_run_but_only_for_one_that_can_begin(
    mlxgpt: Run, corpus: Path, tmp_path: Path
) -> None:
    mlxgpt("train", "--corpus", corpus, *TINY, "--out", "a")
    before = {p: p.read_bytes() for p in Path("a").rglob("*") if p.is_file()}
    small = tmp_path / "small.txt"
    small.write_text("a few words, not enough for a window\n")
    again = ("train", *TINY, "--out", "a")
    refused(mlxgpt(*again, "--corpus", corpus), "already holds a run", "--overwrite")
    for arguments, words in (
        (("--corpus", tmp_path / "absent.txt"), "absent.txt"),
        (("--corpus", small, "--ctx", "512"), "context"),
        (("--corpus", small, "--val-fraction", "1e-9"), "val"),
        (("--corpus", corpus, "--set", "model.vocab_size=5"), "vocab_size"),
        (("--corpus", corpus, "--init-from", "nowhere"), "nowhere"),
        (("--corpus", corpus, "--tokenizer", "nowhere"), "nowhere"),
    ):
        refused(mlxgpt(*again, *arguments, "--overwrite"), words)
        assert before == {p: p.read_bytes() for p in Path("a").rglob("*") if p.is_file()}
    assert mlxgpt(*again, "--corpus", corpus, "--overwrite", "--seed", "5")[0] == 0
    assert RunDirectory("a").config(TrainConfig).seed == 5
    Path("b").mkdir()
    Path("b/precious").touch()
    Path("c").touch()
    for name, words in (("b", "holds no run"), ("c", "is a file")):
        refused(mlxgpt("train", "--corpus", corpus, *TINY, "--out", name, "--overwrite"), words)
    assert Path("b/precious").exists()


MISTAKES: dict[str, tuple[str, ...]] = {
    "": ("no corpus", "--corpus"),
    "--corpus absent.txt": ("absent.txt",),
    "--corpus shakespear": ("did you mean 'shakespeare'",),
    "--corpus empty.txt": ("empty",),
    "--corpus blank": ("empty.txt",),
    "--corpus folder": ("no text files",),
    "--corpus latin1.txt": ("latin1.txt", "UTF-8"),
    "--corpus few.txt": ("context",),
    "--corpus one.txt": ("too small",),
    "--corpus words.txt --val-fraction 0": ("val_fraction",),
    "--corpus words.txt --val-fraction 1e-12": ("validation",),
    "--corpus words.txt --steps -3": ("steps", "-3"),
    "--corpus words.txt --steps abc": ("--steps",),
    "--corpus words.txt --steps 1.5": ("--steps",),
    "--corpus words.txt --batch 0": ("micro_batch_size",),
    "--corpus words.txt --ctx 0": ("max_seq_len",),
    "--corpus words.txt --n-embd 30 --n-head 4": ("n_embd", "30", "n_head"),
    "--corpus words.txt --n-head 4 --n-kv-head 3": ("n_head", "n_kv_head"),
    "--corpus words.txt --n-embd 12 --n-head 4": ("head_dim",),
    "--corpus words.txt --vocab-size 10": ("vocab_size", "257"),
    "--corpus words.txt --tokenizer char --vocab-size 300": ("vocab_size", "char"),
    "--corpus words.txt --set tokenizer.source=char --set tokenizer.pattern=gpt2": ("pattern",),
    "--corpus words.txt --set optimizer.muon_lr=0.1": ("muon_lr", "adamw"),
    "--corpus words.txt --lr-schedule constant --set optimizer.min_lr_ratio=0.1": ("constant",),
    "--corpus words.txt --set data.text_field=body": ("text_field", ".jsonl"),
    "--corpus words.txt --preset 11m": ("unknown preset '11m'",),
    "--corpus words.txt --config absent.yaml": ("absent.yaml",),
    "--corpus words.txt --config broken.yaml": ("broken.yaml is not YAML",),
    "--corpus words.txt --config words.txt": ("words.txt",),
    "--corpus words.txt --config binary": ("binary",),
    "--corpus words.txt --config folder": ("folder",),
    "--corpus words.txt --set nonsense": ("--set", "nonsense"),
    "--corpus words.txt --set stepps=3": ("unknown setting 'stepps'; did you mean 'steps'?",),
    "--corpus words.txt --set optimizer.max_lr=fast": ("optimizer.max_lr", "fast"),
    "--corpus words.txt --set model=3": ("model",),
    "--corpus words.txt --set steps=[1": ("--set",),
    "--corpus words.txt --tokenizer nowhere": ("nowhere",),
    "--corpus words.txt --tokenizer folder": ("folder", "tokenizer.json"),
    "--corpus words.txt --set model.vocab_size=100": ("tokenizer has", "100"),
    "--corpus words.txt --steps 10 --warmup 11": ("warmup_steps", "11", "10"),
    "--corpus words.txt --max-lr nan": ("max_lr",),
    "--corpus words.txt --max-lr inf": ("max_lr",),
    "--corpus words.txt --max-lr 0": ("max_lr",),
    "--corpus words.txt --dropout 1": ("dropout",),
    "--corpus words.txt --bpe-dropout -0.1": ("bpe_dropout", "-0.1"),
    "--corpus words.txt --bpe-dropout 1.1": ("bpe_dropout", "1.1"),
    "--corpus words.txt --bpe-dropout nan": ("bpe_dropout",),
    "--corpus words.txt --bpe-dropout 0.1 --no-stream": ("bpe_dropout", "--no-stream"),
    "--corpus words.txt --dtype float16": ("dtype", "float32, bfloat16"),
    "--corpus words.txt --optimizer sgd": ("optimizer.name", "adamw, muon"),
    "--corpus words.txt --lr-schedule cosin": ("lr_schedule", "cosine"),
    "--corpus words.txt --eval-every 0": ("eval_every",),
    "--corpus words.txt --init-from nowhere": ("nowhere",),
    "--corpus words.txt --init-from words.txt": ("words.txt",),
    "--corpus words.txt --out words.txt/run": ("words.txt/run",),
    "--resume nowhere": ("nowhere", "not a run directory"),
    "--resume words.txt": ("words.txt", "not a run directory"),
    "--resume folder": ("folder", "not a run directory"),
    "--corpuss x": ("--corpuss",),
    "extra": ("extra",),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(mlxgpt: Run, corpus: Path, mistake: str) -> None:
    Path("words.txt").write_bytes(corpus.read_bytes())
    Path("empty.txt").touch()
    Path("few.txt").write_text("just a few words")
    Path("one.txt").write_text("a")
    Path("latin1.txt").write_bytes("žluť".encode("latin2") * 50)
    Path("broken.yaml").write_text("a: [1\n")
    Path("binary").write_bytes(bytes(range(256)))
    Path("folder").mkdir()
    Path("folder/image.png").touch()
    before = sorted(Path().rglob("*"))
    arguments = mistake.split()
    defaults = [] if "--resume" in arguments else ["--out", "fresh"]
    for flag, value in (("--ctx", "32"), ("--steps", "20"), ("--batch", "4")):
        if "--resume" not in arguments and flag not in arguments:
            defaults += [flag, value]
    if "--out" in arguments:
        defaults = defaults[2:]
    words = MISTAKES[mistake]
    if mistake == "--corpus blank":
        Path("blank").mkdir()
        Path("blank/empty.txt").touch()
        before, words = sorted(Path().rglob("*")), ("empty",)
    refused(mlxgpt("train", *defaults, *arguments), *words)
    assert sorted(Path().rglob("*")) == before


BPE = [*TINY, "--tokenizer", "bpe", "--vocab-size", "300"]


def test_bpe_dropout_streams_says_so_and_resumes(mlxgpt: Run, corpus: Path) -> None:
    code, _, err = mlxgpt("train", "--corpus", corpus, *BPE, "--out", "a", "--bpe-dropout", "0.1")
    assert code == 0, err
    assert "bytes to train on, streamed with BPE-dropout 0.1" in err
    assert "BPE-dropout is not" not in err
    data = RunDirectory("a").config(TrainConfig).data
    assert (data.bpe_dropout, data.stream) == (0.1, True)
    assert "nothing to do" in mlxgpt("train", "--resume", "a")[2]
    assert mlxgpt("train", "-c", "a/run.yaml", "--out", "b")[0] == 0
    assert Path("a/model.safetensors").read_bytes() == Path("b/model.safetensors").read_bytes()


def test_bpe_dropout_without_merges_is_one_line_and_the_run_without_it(
    mlxgpt: Run, corpus: Path
) -> None:
    code, _, err = mlxgpt("train", "--corpus", corpus, *TINY, "--out", "a", "--bpe-dropout", "0.1")
    assert code == 0, err
    assert err.count("BPE-dropout") == 1
    assert "note       BPE-dropout is not possible with this char tokenizer" in err
    assert mlxgpt("train", "--corpus", corpus, *TINY, "--out", "b")[0] == 0
    for name in ("run.yaml", "model.safetensors"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()


def test_a_window_of_one_token_trains(mlxgpt: Run, corpus: Path) -> None:
    assert mlxgpt("train", "--corpus", corpus, *TINY, "--ctx", "1", "--out", "a")[0] == 0


def test_a_run_that_diverges_says_what_is_left(mlxgpt: Run, corpus: Path) -> None:
    result = mlxgpt("train", "--corpus", corpus, *TINY, "--out", "a", "--max-lr", "1e30")
    refused(result, "step 2", "the last good weights are those of step 0 in a", "--max-lr")
    load("a")
    assert "nothing to do" not in mlxgpt("train", "--resume", "a")[2]


def test_resume_refuses_another_corpus_and_a_plain_model(
    mlxgpt: Run, corpus: Path, tmp_path: Path
) -> None:
    mlxgpt("train", "--corpus", corpus, *TINY, "--out", "a")
    text = corpus.read_text()
    corpus.write_text(text + "one more line\n")
    refused(mlxgpt("train", "--resume", "a"), "is not what this run was trained on")
    corpus.write_text(text)
    for name in ("run.yaml", "metrics.jsonl"):
        Path("a", name).unlink()
    refused(mlxgpt("train", "--resume", "a"), "weights only", "--init-from a")


def test_a_damaged_run_config_is_named(mlxgpt: Run, corpus: Path) -> None:
    mlxgpt("train", "--corpus", corpus, *TINY, "--out", "a")
    for text in ("steps: many\n", "- 1\n", "data: {corpus: x}\nstepps: 1\n", ""):
        Path("a/run.yaml").write_text(text)
        refused(mlxgpt("train", "--resume", "a"), "run.yaml")
