"""A run directory -> what is worth telling of it: trained on what, for how long, how well."""

from dataclasses import dataclass
from pathlib import Path

from mlxgpt.errors import CheckpointError
from mlxgpt.train.config import TrainConfig
from mlxgpt.train.run_dir import CONFIG, RunDirectory
from mlxgpt.train.sft.config import SFTConfig


@dataclass(frozen=True)
class RunFacts:
    """Facts of one training run; what was not measured is None."""

    data: str
    """Where the text, or the rows, come from."""
    start: str | None
    """The model whose weights it began with."""
    optimizer: str
    seed: int
    steps_wanted: int
    steps_done: int
    tokens: int
    """Target tokens of the steps that are done."""
    train_loss: float | None
    """Of the last logged step, nats per token."""
    val_loss: float | None
    """Of the last validation, nats per token."""
    bits_per_byte: float | None

    def rows(self) -> list[tuple[str, str]]:
        """Return the facts in words."""
        done = f"{self.steps_done:,}"
        if self.steps_done < self.steps_wanted:
            done += f" of {self.steps_wanted:,}"
        rows = [("data", self.data)]
        if self.start:
            rows.append(("first weights", self.start))
        rows += [("steps", f"{done}, {self.tokens:,} tokens"), ("optimizer", self.optimizer)]
        rows.append(("seed", str(self.seed)))
        for name, value in (("training loss", self.train_loss), ("validation loss", self.val_loss)):
            if value is not None:
                rows.append((name, f"{value:.4f} nats a token"))
        if self.bits_per_byte is not None:
            rows.append(("bits per byte", f"{self.bits_per_byte:.4f}"))
        return rows


def run_facts(path: Path) -> RunFacts | None:
    """Return the facts of the run in `path`; None if it is no run directory.

    Raises `CheckpointError` if its run.yaml is damaged.
    """
    if not (path / CONFIG).is_file():
        return None
    run = RunDirectory(path)
    config = run.config(SFTConfig if run.is_fine_tuning else TrainConfig)
    try:
        metrics = run.metrics()
        last = max((int(r["step"]) for r in metrics), default=0)
        losses = [float(r["loss"]) for r in metrics if "loss" in r]
        validations = [r for r in metrics if "val_loss" in r]
        final = validations[-1] if validations else {}
        pretraining = isinstance(config, TrainConfig)
        if pretraining:
            tokens = last * config.tokens_per_step
        else:
            tokens = sum(int(r["num_targets"]) for r in metrics if "loss" in r)
        val_loss, bits = final.get("val_loss"), final.get("bits_per_byte")
        return RunFacts(
            data=config.data.corpus if pretraining else config.data.train,
            start=config.init_from if pretraining else config.base,
            optimizer=config.optimizer.name,
            seed=config.seed,
            steps_wanted=config.num_steps,
            steps_done=last,
            tokens=tokens,
            train_loss=losses[-1] if losses else None,
            val_loss=None if val_loss is None else float(val_loss),
            bits_per_byte=None if bits is None else float(bits),
        )
    except (TypeError, ValueError, KeyError, OSError) as e:
        raise CheckpointError(f"{path / 'metrics.jsonl'} is damaged: {e}") from e
