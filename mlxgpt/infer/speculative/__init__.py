"""Guessing several tokens ahead, and keeping exactly what the model would have written."""

from mlxgpt.infer.speculative.draft_costs import DraftCosts, StepTimes
from mlxgpt.infer.speculative.draft_length import DraftLength
from mlxgpt.infer.speculative.draft_model import DraftModel
from mlxgpt.infer.speculative.ngram import NGram
from mlxgpt.infer.speculative.proposer import Draft, Proposer
from mlxgpt.infer.speculative.verification import Guessed, verify
from mlxgpt.infer.speculative.vocabulary import Vocabulary, check_vocabularies

__all__ = [
    "Draft",
    "DraftCosts",
    "DraftLength",
    "DraftModel",
    "Guessed",
    "NGram",
    "Proposer",
    "StepTimes",
    "Vocabulary",
    "check_vocabularies",
    "verify",
]
