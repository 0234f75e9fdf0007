"""tokenizer.json -> mlxgpt's own entrants: each tier, and BPE-dropout."""

from pathlib import Path

from benchmarks.tokenizer.peers import DROPOUT, Peer
from benchmarks.tokenizer.race import Encode
from mlxgpt.text import Tokenizer

MUCH = 10**10
"""Bytes of work that are worth a compiler."""


def open_plain(file: Path) -> Encode:
    tokenizer = Tokenizer.load(file)
    return lambda documents: [tokenizer.encode_array(d) for d in documents]


def open_compiled(file: Path) -> Encode:
    tokenizer = load_compiled(file)
    return lambda documents: [tokenizer.encode_array(d) for d in documents]


def open_dropout(file: Path) -> Encode:
    tokenizer = load_compiled(file)
    return lambda documents: [
        tokenizer.encode_array(d, dropout=DROPOUT, seed=i) for i, d in enumerate(documents)
    ]


def load_compiled(file: Path) -> Tokenizer:
    tokenizer = Tokenizer.load(file)
    assert tokenizer.use_compiled(MUCH, print)
    return tokenizer


PLAIN = (Peer("mlxgpt, plain", "mlxgpt", open_plain),)
COMPILED = (
    Peer("mlxgpt, compiled", "mlxgpt", open_compiled),
    Peer("mlxgpt, dropout 0.1", "mlxgpt", open_dropout, exact=False),
)
NOT_COMPILED = "compiled tier: left out, numba is not installed or MLXGPT_KERNELS is off\n"
