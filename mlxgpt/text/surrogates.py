"""Any Python string -> a string that has a UTF-8 form; everything else about it is kept.

JSON escapes such as `"\\ud83d"` and badly extracted PDFs leave halves of UTF-16 pairs in strings.
Each entry to the tokenizer passes through here, so that all of them treat such halves alike.
"""


def repair_surrogates(text: str) -> str:
    """Join each surrogate pair of `text` to its character and replace each lone half by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
