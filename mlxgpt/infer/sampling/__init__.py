"""Logits -> the distribution that is sampled from -> a token id."""

from mlxgpt.infer.sampling.choice import can_look_ahead, choose
from mlxgpt.infer.sampling.context import Context
from mlxgpt.infer.sampling.distribution import next_logprobs
from mlxgpt.infer.sampling.draw import draw, uniform
from mlxgpt.infer.sampling.params import SamplingParams
from mlxgpt.infer.sampling.stop_text import StopText
from mlxgpt.infer.sampling.token_logprobs import PendingLogprobs, TokenLogprobs, chosen_logprobs

__all__ = [
    "Context",
    "PendingLogprobs",
    "SamplingParams",
    "StopText",
    "TokenLogprobs",
    "can_look_ahead",
    "choose",
    "chosen_logprobs",
    "draw",
    "next_logprobs",
    "uniform",
]
