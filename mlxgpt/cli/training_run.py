"""A prepared training -> its steps, watched in a terminal, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from mlxgpt.cli.progress import TrainingProgress
    from mlxgpt.train import Environment, Outcome, RunDirectory
    from mlxgpt.train.job import Job

    Progress = Callable[[str, int, int], None]
    J = TypeVar("J", bound=Job)


@dataclass(frozen=True, kw_only=True)
class Words:
    """What is said of one training."""

    about: "Callable[[Environment], Sequence[str]]"
    """Lines for before the first step."""
    title: str
    """Of its plot."""
    result: str
    """What the directory is then: a model, an adapter."""
    next: str
    """The command to try out what came of it."""
    resume: str
    """The command to go on with, if it is stopped."""


def refuse_beside_resume(context: typer.Context, instead: str) -> None:
    """Raise `ConfigError` if anything is given beside --resume; `instead` begins a new run."""
    from mlxgpt.errors import ConfigError

    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name) if parameter.name else None
        name = parameter.opts[0]
        if source is not None and source.name == "COMMANDLINE" and name != "--resume":
            name = name if name.startswith("-") else name.upper()
            raise ConfigError(
                f"{name} cannot be combined with --resume: a resumed run keeps the settings in "
                f"its run.yaml; to change them, start a new run with {instead}"
            )


def begin(
    out: Path,
    prepare: "Callable[[Progress], J]",
    words: "Callable[[J, RunDirectory], Words]",
    *,
    overwrite: bool,
) -> None:
    """Prepare a training and run it in a new directory, or in that of a run to be replaced."""
    from mlxgpt.cli.progress import TrainingProgress
    from mlxgpt.train import RunDirectory

    run = RunDirectory(out)
    run.check_free(overwrite=overwrite)
    with TrainingProgress() as progress:
        job = prepare(progress.prepare)
        with run.locked():
            run.check_free(overwrite=overwrite)  # another may have come first
            outcome = _run(job, run, progress, words(job, run), new=True)
    if not outcome.finished:
        raise typer.Exit(130)


def go_on(
    directory: Path,
    prepare: "Callable[[RunDirectory, Progress], J]",
    words: "Callable[[J, RunDirectory], Words]",
) -> None:
    """Prepare the training of a run and go on with it."""
    from mlxgpt.cli.progress import TrainingProgress
    from mlxgpt.train import RunDirectory

    run = RunDirectory(directory)
    with TrainingProgress() as progress:
        job = prepare(run, progress.prepare)
        with run.locked():
            outcome = _run(job, run, progress, words(job, run), new=False)
    if not outcome.finished:
        raise typer.Exit(130)


def _run(
    job: "Job", run: "RunDirectory", progress: "TrainingProgress", words: Words, *, new: bool
) -> "Outcome":
    """Run the trainer, `new` in a directory of its own or on from what is saved there."""
    from mlxgpt.train import StopRequest, Trainer, examine_environment, speed

    config = job.config
    environment = examine_environment(config)
    trainer = Trainer(job, run, environment=environment, observer=progress)
    for line in words.about(environment):
        progress.say(line)
    with StopRequest(progress.stopping) as stop:
        if new:  # only now that nothing of what was asked for can be wrong any more
            run.create(config)
        done = trainer.resume()
        if done == config.num_steps:
            progress.say(f"\nnothing to do: all {done} steps of {run.path} are done")
        progress.start_training(done, config.num_steps)
        outcome = trainer.run(lambda: stop.requested)
    progress.finish()
    plot = run.plot(words.title)
    progress.say(f"\nspeed    {speed(run.metrics())}")
    if outcome.finished:
        for name, what in ((words.result, run.path), ("plot", plot), ("next", words.next)):
            progress.say(f"{name:<8} {what}")
    else:
        progress.say(
            f"\nstopped after step {outcome.step}, all saved; go on with:\n  {words.resume}"
        )
    return outcome
