"""A conversation, rendered -> where in its text the model writes each answer.

A template that marks what is generated says so itself. For any other, what stands before an answer
is rendered alone, opened for it, and with it: the one is the beginning of the other. Where a
template writes earlier turns in another way once there are later ones, the answer is found by
characters put around it, which a template has no reason to look at.
"""

from collections.abc import Sequence

from mlxgpt.errors import TokenizerError
from mlxgpt.text.marked_messages import MarkedMessages

_PRIVATE_USE = range(0xF8FF, 0xE000, -1)
Span = tuple[int, int]


def answer_spans(
    marked: MarkedMessages, text: str, answers: Sequence[int], literals: Sequence[str], name: str
) -> list[Span]:
    """Return where the model writes each of the messages `answers` in `text`, ends included.

    `text` is `marked.text()`, `literals` are the special tokens: that which usually ends an answer
    first, then the longest. An answer ends with one of them, or with its last word. Raises
    `TokenizerError`, naming the template, if it cannot be told.
    """
    edges = _unused(text)
    declared = _declared(marked, text, edges)
    if declared is not None:
        if len(declared) != len(answers):
            raise TokenizerError(
                f"{name} marks {len(declared)} stretches as generated, and the assistant speaks "
                f"{len(answers)} times"
            )
        return declared
    return [_found(marked, text, index, edges, literals, name) for index in answers]


def _declared(marked: MarkedMessages, text: str, edges: tuple[str, str]) -> list[Span] | None:
    """Return what the template marks as generated; None if it marks nothing."""
    shown = marked.with_edges(edges)
    if edges[0] not in shown:
        return None
    if _without(shown, edges) != text:
        raise TokenizerError("the template writes other texts where it marks what is generated")
    before, *pieces = shown.split(edges[0])
    spans, at = [], len(before)
    for piece in pieces:
        inside, _, after = piece.partition(edges[1])
        spans.append((at, at + len(inside)))
        at += len(inside) + len(after)
    return spans


def _found(
    marked: MarkedMessages,
    text: str,
    index: int,
    edges: tuple[str, str],
    literals: Sequence[str],
    name: str,
) -> Span:
    through = marked.beginning(index + 1, False)
    for opened in (True, False):  # some templates have no header for an answer
        before = marked.beginning(index, opened)
        if before is None or through is None:
            continue
        if not text.startswith(before) or not through.startswith(before):
            continue
        # Behind its end a template may write something that it does not between two turns.
        turn = _common(text[len(before) :], through[len(before) :])
        written = _written(turn, literals)
        if text.startswith(through) or turn[:written].endswith(tuple(literals)):
            return len(before), len(before) + written
    span = _by_edges(marked, text, index, edges, literals)
    if span is None:
        raise TokenizerError(
            f"{name} writes earlier messages in another way once there are later ones, so that it "
            "cannot be told what the model writes: learn one answer a row, or give --template"
        )
    return span


def _by_edges(
    marked: MarkedMessages, text: str, index: int, edges: tuple[str, str], literals: Sequence[str]
) -> Span | None:
    """Find the content of an answer, and the special token that follows it."""
    message = marked.messages[index]
    content = message.get("content")
    if not isinstance(content, str) or not content.strip():
        return None
    core = content.strip()
    lead, _, trail = content.partition(core)
    for inner, left, right in ((content, "", ""), (core, lead, trail)):  # as it is, and trimmed
        edged = {**message, "content": f"{left}{edges[0]}{inner}{edges[1]}{right}"}
        messages = [*marked.messages]
        messages[index] = edged
        shown = marked.with_messages(messages)
        if shown is None or _without(shown, edges) != text:
            continue
        start, stop = shown.find(edges[0]), shown.find(edges[1]) - 1
        if start < 0 or stop < start or shown.count(edges[0]) != 1:
            continue
        rest = text[stop:]
        gap = len(rest) - len(rest.lstrip())
        end = next((x for x in literals if rest[gap:].startswith(x)), None)
        return start, stop if end is None else stop + gap + len(end)
    return None


def _common(a: str, b: str) -> str:
    """Return what two texts begin with."""
    pairs = enumerate(zip(a, b, strict=False))
    return a[: next((place for place, (x, y) in pairs if x != y), min(len(a), len(b)))]


def _written(turn: str, literals: Sequence[str]) -> int:
    """Return how much of a turn the model writes: up to the token that ends it, or all of it.

    That is the first of `literals` where it stands in the turn, else whichever stands first behind
    some text. Behind it a template may open the next turn.
    """
    if literals and literals[0] in turn:
        return turn.index(literals[0]) + len(literals[0])
    found = [(turn.find(name, 1), -len(name)) for name in literals if name in turn[1:]]
    if found:
        at, length = min(found)
        return at - length
    return len(turn.rstrip("\n"))


def _unused(text: str) -> tuple[str, str]:
    """Return two characters that are not in a text."""
    free = [chr(code) for code in _PRIVATE_USE if chr(code) not in text][:2]
    if len(free) < 2:
        raise TokenizerError("the text uses up all characters for private use; take some out")
    return free[0], free[1]


def _without(text: str, edges: tuple[str, str]) -> str:
    return text.replace(edges[0], "").replace(edges[1], "")
