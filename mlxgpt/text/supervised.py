"""A conversation, a completion or a text -> ids, and which of them are to be learned.

A conversation is rendered as a whole. Where an answer begins and ends in it is found by rendering
what stands before, and what ends with it: the one is the beginning of the other, or else nobody can
tell what the model writes by itself. What is learned is encoded apart from what stands before it,
so that generation, which sees that alone, has the same ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from mlxgpt.errors import TokenizerError
from mlxgpt.seeding import derive
from mlxgpt.text.chat_template import ChatTemplate, Message
from mlxgpt.text.marked_messages import MarkedMessages
from mlxgpt.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class SupervisedIds:
    """Ids, and for each whether it is to be predicted from the ids before it."""

    ids: list[int]
    supervised: list[bool]


def encode_conversation(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    turns: Literal["all", "last"] = "all",
    dropout: float = 0.0,
    seed: int = 0,
) -> SupervisedIds:
    """Return the ids of the whole conversation; the assistant's turns are supervised.

    Of each of them, or of the last, that is all the template writes behind the header that opens an
    answer, up to the special token that ends it. Where the template writes none behind the last
    message, the end of text is added. Raises `TokenizerError` for messages that the template does
    not take, and for a template of which it cannot be told what the model writes.
    """
    marked = template.marked(tokenizer, messages, tools)
    text = marked.text()
    literals = sorted(tokenizer.special_tokens, key=len, reverse=True)
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    spans = [_span(marked, text, i, literals, template.name) for i in answers]
    ends = bool(spans) and not _ends(text[spans[-1][0] : spans[-1][1]], literals)
    if turns == "last":
        spans = spans[-1:]
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    parts = [text[a:b] for a, b in pairwise(edges)]
    if spans and not parts[-1]:
        parts.pop()
    found = marked.marking.encode_parts(parts, dropout=dropout, seed=seed)
    if ends:
        if answers[-1] != len(messages) - 1:
            raise TokenizerError(f"{template.name} does not tell where an answer ends")
        found = found[: 2 * len(spans)]
        found[-1] = [*found[-1], _end(tokenizer)]
    ids = [i for part in found for i in part]
    return SupervisedIds(ids, [bool(n % 2) for n, part in enumerate(found) for _ in part])


def encode_completion(
    tokenizer: Tokenizer, prompt: str, completion: str, *, dropout: float = 0.0, seed: int = 0
) -> SupervisedIds:
    """Return the ids of a prompt and of what follows it; that and the end of text are supervised.

    In front stands what begins a text for this tokenizer; for an empty prompt, where nothing does,
    its end of text. Raises `TokenizerError` if it has none.
    """
    first = [*_beginning(tokenizer), *_plain(tokenizer, prompt, dropout, seed, 0)]
    end = _end(tokenizer)
    first = first or [end]
    then = [*_plain(tokenizer, completion, dropout, seed, 1), end]
    return SupervisedIds([*first, *then], [False] * len(first) + [True] * len(then))


def encode_passage(
    tokenizer: Tokenizer, text: str, *, dropout: float = 0.0, seed: int = 0
) -> SupervisedIds:
    """Return the ids of a text and its end; all but the first are supervised.

    Raises `TokenizerError` if the tokenizer has no end of text.
    """
    begins = _beginning(tokenizer)
    ids = [*begins, *_plain(tokenizer, text, dropout, seed, 0), _end(tokenizer)]
    return SupervisedIds(ids, [False] + [True] * (len(ids) - 1))


def _plain(tokenizer: Tokenizer, text: str, dropout: float, seed: int, part: int) -> list[int]:
    if not dropout:
        return tokenizer.encode(text)
    own = derive(seed, "supervised-part", part) % 2**63
    return tokenizer.encode(text, dropout=dropout, seed=own)


def _beginning(tokenizer: Tokenizer) -> list[int]:
    """Return the ids that the tokenizer's file puts before every text."""
    plain, whole = tokenizer.encode("a"), tokenizer.encode("a", add_special_tokens=True)
    starts = range(len(whole) - len(plain) + 1)
    return whole[: next(i for i in starts if whole[i : i + len(plain)] == plain)]


def _end(tokenizer: Tokenizer) -> int:
    if tokenizer.eot_id is None:
        raise TokenizerError("this tokenizer has no token that ends a text: none can be learned")
    return tokenizer.eot_id


def _span(
    marked: MarkedMessages, text: str, index: int, literals: Sequence[str], name: str
) -> tuple[int, int]:
    """Return where the model writes message `index` in `text`, its end token included."""
    before = marked.beginning(index, True)
    through = marked.beginning(index + 1, False)
    if before is None or not text.startswith(before):  # such a template has no header
        before = marked.beginning(index, False)
    known = before is not None and through is not None
    if not known or not text.startswith(before or "") or not text.startswith(through or ""):
        raise TokenizerError(
            f"{name} writes earlier messages in another way once there are later ones, so that it "
            "cannot be told what the model writes: learn one answer a row, or give --template"
        )
    assert before is not None
    assert through is not None
    return len(before), len(before) + _written(through[len(before) :], literals)


def _written(turn: str, literals: Sequence[str]) -> int:
    """Return how much of a turn the model writes: up to its last special token, or all of it."""
    last = max((turn.rfind(name) + len(name) for name in literals if name in turn), default=0)
    return last or len(turn.rstrip("\n"))


def _ends(written: str, literals: Sequence[str]) -> bool:
    return any(written.endswith(name) for name in literals)
