"""Batches -> weights: one loop, for whatever is trained."""

from mlxgpt.train.config import OptimizerConfig, TokenizerConfig, TrainConfig
from mlxgpt.train.describe import describe, speed, title
from mlxgpt.train.environment import Environment, examine_environment
from mlxgpt.train.evaluate import Evaluation
from mlxgpt.train.interrupt import StopRequest
from mlxgpt.train.observer import Observer, StepReport
from mlxgpt.train.prepare import prepare_resume, prepare_run
from mlxgpt.train.prepared import Prepared
from mlxgpt.train.run_dir import RunDirectory
from mlxgpt.train.settings import assemble
from mlxgpt.train.trainer import Outcome, Trainer

__all__ = [
    "Environment",
    "Evaluation",
    "Observer",
    "OptimizerConfig",
    "Outcome",
    "Prepared",
    "RunDirectory",
    "StepReport",
    "StopRequest",
    "TokenizerConfig",
    "TrainConfig",
    "Trainer",
    "assemble",
    "describe",
    "examine_environment",
    "prepare_resume",
    "prepare_run",
    "speed",
    "title",
]
