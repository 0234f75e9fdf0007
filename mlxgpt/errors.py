"""Errors meant for the user: what was expected, what came, and what to do about it.

The command line prints such an error as one line and leaves with exit code 2. Anything that is not
an `MLXGPTError` is our own fault and keeps its traceback.
"""

import difflib
from collections.abc import Iterable


class MLXGPTError(Exception):
    """Base of every error that a user can cause and mend."""


class ConfigError(MLXGPTError):
    """A setting has a wrong name, type or value, or two settings contradict each other."""


class DataError(MLXGPTError):
    """A source, a document or a token file cannot be used; the message names the place."""


class TokenizerError(MLXGPTError):
    """A tokenizer file, an id or a tokenizer setting cannot be used."""


class CheckpointError(MLXGPTError):
    """A model directory or a saved training state is incomplete, damaged or of another model."""


class DivergedError(MLXGPTError):
    """Training produced a number that is not finite."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"`, or the whole list of `known` if none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(names)}"


class MLXGPTWarning(UserWarning):
    """Something works, but not in the way that was asked for; the command line shows one line."""


def one_line(text: str, longest: int = 1000) -> str:
    """Return `text` with what is not printable escaped, cut to `longest` characters.

    For what a stranger's file says: it may steer a terminal.
    """
    text = text if len(text) <= longest else f"{text[: longest - 3]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
