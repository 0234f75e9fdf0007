"""Many texts at once: requests join and leave at any step."""

from mlxgpt.infer.engine.completion import Completion, Output, TextDecoder
from mlxgpt.infer.engine.engine import Engine
from mlxgpt.infer.engine.settings import EngineSettings
from mlxgpt.infer.engine.statistics import Statistics

__all__ = ["Completion", "Engine", "EngineSettings", "Output", "Statistics", "TextDecoder"]
