"""Bytes of work -> plain Python or kernels: which tier is the quicker one here and now.

Importing numba takes half a second and compiling the kernels some more, once on a machine. So
prompts and small files are left to the plain tier, which gives the same ids. This module imports
neither numba nor any kernel before it has to.

`MLXGPT_KERNELS` says which: `auto` (the default), or `off` for the plain tier always.
"""

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Literal

from mlxgpt.errors import ConfigError
from mlxgpt.machine.interrupts import held_interrupts
from mlxgpt.text.compiled.code_cache import has_code, mark_code

VARIABLE = "MLXGPT_KERNELS"

Purpose = Literal["encoding", "training"]

# From how many bytes of text on kernels are used. The plain tier does 1 to 10 MB a second.
READY_BYTES = 1 << 12
"""If they run in this process already: a call costs 10 microseconds."""
WARM_BYTES = 1 << 19
"""If their machine code is on the disk: half a second for numba."""
COLD_BYTES = 1 << 22
"""If they must be compiled: some seconds, but only once on a machine."""

_SECONDS: dict[Purpose, int] = {"encoding": 6, "training": 5}
_ready: set[Purpose] = set()  # a process can load them only once: a fact, not a setting
_warming = threading.Lock()


def compiled_available() -> bool:
    """Return whether the kernels may and can be used: not switched off, and numba is there.

    Imports numba. Raises `ConfigError` if `MLXGPT_KERNELS` is neither `auto` nor `off`.
    """
    return _wanted() and _has_numba()


def cache_is_warm(purpose: Purpose = "encoding") -> bool:
    """Return whether the machine code for `purpose` is on this machine's disk."""
    return has_code(purpose)


def worthwhile(num_bytes: int, purpose: Purpose = "encoding") -> bool:
    """Return whether kernels would be done sooner with so many bytes of text. Raises as above."""
    if not _wanted() or num_bytes < READY_BYTES:
        return False
    if purpose in _ready:
        return True
    if num_bytes < WARM_BYTES or (num_bytes < COLD_BYTES and not has_code(purpose)):
        return False
    return _has_numba()


def kernel_state() -> str:
    """Return in words what the kernels are for this machine: off, missing, compiled or not yet."""
    if not _wanted():
        return f"plain Python, as {VARIABLE}=off says"
    if not _has_numba():
        return "plain Python, because numba cannot be imported"
    if all(map(has_code, _SECONDS)):
        return "compiled kernels for large texts"
    return "kernels, compiled with the first large text, in seconds"


def warm_up(notice: Callable[[str], None] | None = None, purpose: Purpose = "encoding") -> None:
    """Load the kernels for `purpose`, or compile them, which `notice` is told before.

    Returns at once if they are loaded. Several threads and processes may do it at the same time.
    """
    with _warming, held_interrupts():  # numba in the middle of it cannot bear one
        if purpose in _ready:
            return
        if notice is not None and not has_code(purpose):
            seconds = _SECONDS[purpose]
            notice(f"compiling the tokenizer kernels, once on this machine (about {seconds} s)")
        _use(purpose)
        mark_code(purpose)
        _ready.add(purpose)


def _wanted() -> bool:
    wanted = os.environ.get(VARIABLE) or "auto"
    if wanted not in ("auto", "off"):
        raise ConfigError(f"{VARIABLE} must be 'auto' or 'off', got '{wanted}'")
    return wanted == "auto"


@cache
def _has_numba() -> bool:
    try:  # it may be missing, or not for this Python or NumPy
        import numba  # noqa: F401
    except Exception:
        return False
    return True


def _use(purpose: Purpose) -> None:
    """Call each kernel once, with the types that it is always called with."""
    text = "a b"
    if purpose == "encoding":
        from mlxgpt.text.bpe.dropout import Dropout
        from mlxgpt.text.compiled.encoder import CompiledEncoder
        from mlxgpt.text.compiled.split_rules import SplitRule

        encoder = CompiledEncoder(range(256), [(97, 98)], [256])
        encoder.encode(text.encode(), SplitRule(0, 0), Dropout(0.5, 0))
        return
    from mlxgpt.text.compiled.merge_learner import learn_merges
    from mlxgpt.text.compiled.split_rules import SplitRule
    from mlxgpt.text.compiled.word_counter import WordCounter

    counter = WordCounter(SplitRule(0, 0))
    counter.add(text)
    learn_merges(counter.words(), 257)
