"""What a stranger's file says -> a part of a message: one printable line, not too long."""

_LONGEST = 1000


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Return `text` with what is not printable escaped, cut to `longest` characters."""
    text = text if len(text) <= longest else f"{text[: longest - 3]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
