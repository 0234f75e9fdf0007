"""A conversation, a completion or a text -> ids, and which of them are to be learned.

A conversation is rendered as a whole; `answer_spans` tells where the model writes. What is learned
is encoded apart from what stands before it, so that generation, which sees that alone, has the same
ids.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.seeding import derive
from mlxgpt.text.answer_spans import answer_spans
from mlxgpt.text.chat_template import ChatTemplate, Message
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
    learned: Collection[int] | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> SupervisedIds:
    """Return the ids of the whole conversation; the assistant's turns are supervised.

    `learned` are the indices of those that are; None: all. Of each that is what the template marks
    as generated or, where it marks nothing, all it writes behind the header that opens an answer,
    up to the special token that ends it. Where the template writes none behind the last message,
    the end of text is added. Raises `TokenizerError` for messages that the template does not take,
    and for a template of which it cannot be told what the model writes.
    """
    marked = template.marked(tokenizer, messages, tools)
    text = marked.text()
    end = template.end_of_turn(tokenizer)
    literals = sorted(tokenizer.special_tokens, key=len, reverse=True)
    # The one that ends an answer first: others may stand inside of a turn, or open the next.
    literals.sort(key=lambda name: tokenizer.special_tokens[name] != end)
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    spans = answer_spans(marked, text, answers, literals, template.name)
    both = [x for x in zip(answers, spans, strict=True) if learned is None or x[0] in learned]
    spans = [span for _, span in both]
    open_ended = [index for index, (a, b) in both if not _ends(text[a:b], literals)]
    if any(index != len(messages) - 1 for index in open_ended):
        raise TokenizerError(f"{template.name} does not tell where an answer ends")
    # Cut where answers begin only: what follows an end token may depend on it.
    stop = spans[-1][1] if open_ended else len(text)
    edges = [0, *(a for a, _ in spans), stop]
    parts = [text[a:b] for a, b in pairwise(edges)]
    before, *found = marked.marking.encode_parts(parts, dropout=dropout, seed=seed)
    ids, supervised = before, [False] * len(before)
    for part, (a, b) in zip(found, spans, strict=True):
        written = _behind(part, len(marked.marking.acting(text[a:b])), tokenizer)
        ids += part
        supervised += [True] * written + [False] * (len(part) - written)
    if open_ended:
        ids, supervised = [*ids, _end(tokenizer)], [*supervised, True]
    return SupervisedIds(ids, supervised)


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


def _behind(ids: Sequence[int], count: int, tokenizer: Tokenizer) -> int:
    """Return the place behind the `count`-th special token; behind all ids for none."""
    special = set(tokenizer.special_tokens.values())
    places = [place for place, i in enumerate(ids) if i in special]
    return places[count - 1] + 1 if count else len(ids)


def _ends(written: str, literals: Sequence[str]) -> bool:
    return any(written.endswith(name) for name in literals)
