"""The parts of a tokenizer file -> what encodes and decodes: our own engine, or the library's."""

import warnings

from mlxgpt.errors import MLXGPTWarning, TokenizerError
from mlxgpt.text.files.loading import LibraryParts, OwnParts
from mlxgpt.text.library_engine import LibraryEngine
from mlxgpt.text.own_engine import OwnEngine


def make_engine(parts: OwnParts | LibraryParts, where: str) -> OwnEngine | LibraryEngine:
    """Return the engine for a file called `where` in messages.

    What is not implemented here is done by the `tokenizers` library, as a whole, and announced by
    an `MLXGPTWarning` that names the part. Raises `TokenizerError` if neither takes the file.
    """
    try:
        if isinstance(parts, OwnParts):
            return OwnEngine(parts.model, parts.added, parts.pipeline)
        engine = LibraryEngine(parts.content, parts.added, parts.reason)
    except TokenizerError as e:
        reason = "" if isinstance(parts, OwnParts) else f" ({parts.reason} is not ours)"
        raise TokenizerError(f"{where}: {e}{reason}") from e
    warnings.warn(
        f"{where}: {engine.fallback_reason} is not implemented here; the `tokenizers` library does "
        "the whole encoding, without BPE-dropout",
        MLXGPTWarning,
        stacklevel=3,
    )
    return engine
