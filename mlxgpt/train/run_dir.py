"""A run directory: `run.yaml`, `metrics.jsonl`, `state/` and, around them, a model directory."""

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from mlxgpt.atomic import discard, write_bytes
from mlxgpt.config import build, dump_yaml, load_yaml
from mlxgpt.errors import CheckpointError, ConfigError
from mlxgpt.train.config import RunConfig
from mlxgpt.train.plot import plot_loss

CONFIG, METRICS, PLOT = "run.yaml", "metrics.jsonl", "loss.png"
_LOCK = ".lock"
_SHOWN = ("model*.safetensors", "adapters.safetensors")
_DESCRIPTION = (
    *("config.json", "generation_config.json", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "adapter_config.json"),
)
"""What a run writes beside its weights; one of another kind would not replace all of it."""

Config = TypeVar("Config", bound=RunConfig)


class RunDirectory:
    """The folder of one run. Opening it makes nothing; `create` does."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.expanduser(path))

    @staticmethod
    def unused(corpus: str) -> Path:
        """Return the first of `runs/CORPUS-1`, `runs/CORPUS-2`, ... that does not exist."""
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(corpus).name.split(".")[0]).strip("-") or "run"
        number = 1
        while (path := Path("runs") / f"{stem}-{number}").exists():
            number += 1
        return path

    def check_free(self, *, overwrite: bool) -> None:
        """Raise `ConfigError` if a new run must not start here.

        With `overwrite` an earlier run may be replaced; a folder that holds anything else may not.
        """
        try:
            str(self.path).encode("utf-8")
        except UnicodeEncodeError as e:
            name = str(self.path).encode("utf-8", "backslashreplace").decode()
            raise ConfigError(
                f"the name {name} is not UTF-8, which MLX needs; choose another --out"
            ) from e
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; choose another --out")
        if not self.path.is_dir() or not any(p.name != _LOCK for p in self.path.iterdir()):
            return
        if not (self.path / CONFIG).exists():
            raise ConfigError(f"{self.path} is not empty and holds no run; choose another --out")
        if not overwrite:
            raise ConfigError(
                f"{self.path} already holds a run: go on with --resume {self.path}, replace it "
                "with --overwrite, or choose another --out"
            )

    def create(self, config: RunConfig) -> None:
        """Make the folder, or empty it of an earlier run, and write the resolved config.

        The state goes first: where it cannot be taken away, the earlier run is left as it was.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        names = ("state", *_SHOWN, *_DESCRIPTION, METRICS, PLOT)
        for path in (path for name in names for path in self.path.glob(name)):
            try:
                discard(path)
            except OSError as e:
                raise ConfigError(f"cannot replace {path}: {e.strerror}") from e
        write_bytes(self.path / CONFIG, dump_yaml(config).encode())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold it: two trainings in one would ruin each other's files.

        Raises `ConfigError` while another process holds it. The system lets go of it when a process
        ends, however it ends.
        """
        fresh = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _LOCK).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as e:
                file.seek(0)
                raise ConfigError(
                    f"{self.path} is being trained by process {file.read().strip()}; wait for it, "
                    "or choose another --out"
                ) from e
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            try:
                yield
            finally:
                if fresh and [p.name for p in self.path.iterdir()] == [_LOCK]:
                    shutil.rmtree(self.path)

    @property
    def is_fine_tuning(self) -> bool:
        """Whether this is a run of `mlxgpt sft`. Raises `CheckpointError` if it is none at all."""
        return "base" in self._values()

    def config(self, kind: type[Config]) -> Config:
        """Read the config of the run, which must be of this kind. Raises `CheckpointError`."""
        values = self._values()
        fields = {field.name for field in dataclasses.fields(kind)}
        if ("base" in values) != ("base" in fields):
            command = "sft" if "base" in values else "train"
            raise CheckpointError(f"{self.path} is a run of `mlxgpt {command}`: resume it so")
        try:
            return build(kind, values)
        except ConfigError as e:
            raise CheckpointError(f"{self.path / CONFIG} is damaged: {e}") from e

    def _values(self) -> dict[str, Any]:
        if not (self.path / CONFIG).exists():
            if (self.path / "config.json").exists():
                raise CheckpointError(
                    f"{self.path} holds weights only, no training run: start a new run with "
                    f"--init-from {self.path}"
                )
            raise CheckpointError(f"{self.path} is not a run directory: it has no {CONFIG}")
        try:
            return load_yaml(self.path / CONFIG)
        except ConfigError as e:
            raise CheckpointError(f"{self.path / CONFIG} is damaged: {e}") from e

    @property
    def started(self) -> bool:
        """False for a run that was ended before it saved its first state."""
        return any(any(self.path.glob(name)) for name in ("state/step-*", *_SHOWN))

    def log(self, record: dict[str, Any]) -> None:
        """Append one line to the metrics. Raises `CheckpointError` when the disk refuses."""
        try:
            with (self.path / METRICS).open("a", encoding="utf-8") as f:
                f.write(json.dumps(record) + "\n")
        except OSError as e:
            raise CheckpointError(
                f"cannot write {self.path / METRICS}: {e.strerror}; what was saved last is "
                f"untouched, go on later with --resume {self.path}"
            ) from e

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics so far. A line that a crash cut short is left out."""
        file = self.path / METRICS
        if not file.exists():
            return []
        records = []
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        return records

    def plot(self, title: str) -> Path:
        """Draw the metrics into `loss.png` and return its path."""
        plot_loss(self.metrics(), self.path / PLOT, title)
        return self.path / PLOT

    def forget_after(self, step: int) -> None:
        """Drop metrics of steps that the saved state knows nothing of; they will be done again."""
        kept = [r for r in self.metrics() if r["step"] <= step]
        text = "".join(json.dumps(r) + "\n" for r in kept)
        file = self.path / METRICS
        if file.exists() and file.read_bytes() != text.encode():
            write_bytes(file, text.encode())
