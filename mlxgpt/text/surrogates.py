"""Any Python string -> a string that has a UTF-8 form; everything else about it is kept.

JSON escapes such as `"\\ud83d"` and badly extracted PDFs leave halves of UTF-16 pairs in strings.
Each entry to the tokenizer passes through here, so that all of them treat such halves alike.
"""

from collections.abc import Iterable, Iterator

from mlxgpt.errors import TokenizerError


def repair_surrogates(text: str) -> str:
    """Join each surrogate pair of `text` to its character and replace each lone half by U+FFFD."""
    if not isinstance(text, str):
        raise TokenizerError(f"a text must be a str, got {type(text).__name__}")
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def repaired(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces of one text, repaired as the whole text would be."""
    half = ""  # the first half of a pair, whose second half may begin the next piece
    for piece in pieces:
        piece = half + piece
        half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        yield repair_surrogates(piece[:-1] if half else piece)
    if half:
        yield repair_surrogates(half)
