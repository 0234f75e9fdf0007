"""The logits of a step -> the tokens that each text goes on with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxgpt.infer.engine.scheduler import Row
from mlxgpt.infer.engine.sequence import Sequence as Text
from mlxgpt.infer.sampling import TokenLogprobs, chosen_logprobs
from mlxgpt.infer.speculative import Draft, Guessed, verify

_NO_GUESSES = Draft([], None)


@dataclass(frozen=True)
class Chosen:
    """What a row gave to a text: its own, or another choice of the same request."""

    row: Row
    text: Text
    token_ids: list[int]
    """The guesses that are kept, and the token after them."""
    logprobs: list[TokenLogprobs] | None
    """One for each token, if they were asked for."""


def choose_tokens(
    rows: Sequence[Row],
    choices: Mapping[Text, Sequence[Text]],
    drafts: Mapping[Text, Draft],
    logits: mx.array,
) -> list[Chosen]:
    """Choose for every row that wants logits, and for the further `choices` that begin with it.

    `logits` (M, V) are those that the rows want, one row after the other. The texts of a row come
    one after the other, its own first.
    """
    guessed: list[Guessed] = []
    texts: list[tuple[Row, Text]] = []
    wanted: list[tuple[int | None, int]] = []  # log-probabilities, and where a text's logits begin
    places: list[int] = []
    begin = 0
    for row in rows:
        if not row.wants_logits:
            continue
        draft = drafts.get(row.sequence, _NO_GUESSES).first(row.drafted)
        for text in (row.sequence, *choices.get(row.sequence, ())):
            texts.append((row, text))
            wanted.append((text.params.logprobs, len(places)))
            places += range(begin, begin + row.drafted + 1)
            prompt, written = text.token_ids[: text.prompt_length], text.token_ids
            guessed.append(Guessed(text.params, prompt, written[text.prompt_length :], draft))
        begin += row.drafted + 1
    if len(places) > begin:  # several texts take theirs from one row
        logits = logits[mx.array(places)]
    kept = verify(guessed, logits)
    logprobs = chosen_logprobs(logits, wanted, kept)
    return [
        Chosen(row, text, tokens, of_tokens)
        for (row, text), tokens, of_tokens in zip(texts, kept, logprobs, strict=True)
    ]
