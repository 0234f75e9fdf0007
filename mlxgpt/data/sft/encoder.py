"""A row of any form -> the example that training sees, or why there is none."""

from dataclasses import dataclass

import numpy as np

from mlxgpt.data.sft.config import SFTDataConfig
from mlxgpt.data.sft.example import Example
from mlxgpt.data.sft.forms import Completion, Conversation, Form
from mlxgpt.errors import DataError
from mlxgpt.text import Tokenizer
from mlxgpt.text.chat_template import ChatTemplate
from mlxgpt.text.supervised import (
    SupervisedIds,
    encode_completion,
    encode_conversation,
    encode_passage,
)


@dataclass(frozen=True)
class Unusable:
    """A row of a known form that cannot be trained on."""

    reason: str
    """One of a few, so that rows can be counted by it."""


NO_ANSWER = Unusable("no answer in it")
EMPTY = Unusable("its answer is empty")
EMPTY_TEXT = Unusable("its text is empty")
TOO_LONG = Unusable("longer than --max-length")
NOTHING_LEFT = Unusable("nothing to learn is left after the cut to --max-length")


class RowEncoder:
    """Turns rows into examples, with one tokenizer, template and set of rules."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        config: SFTDataConfig,
        max_length: int,
    ) -> None:
        """`template` None: a prompt and its answer one after the other, and no conversations."""
        self._tokenizer, self._template = tokenizer, template
        self._config, self._max_length = config, max_length
        begin = tokenizer.special_tokens.get(tokenizer.border_names().get("bos_token", ""))
        self._begin = begin

    def encode(self, form: Form, *, dropout: float = 0.0, seed: int = 0) -> Example | Unusable:
        """Return the example of a row, cut to the length that is allowed.

        Raises `DataError` for a conversation where there is no template, and `TokenizerError` for
        what the template refuses.
        """
        return self.encode_counted(form, dropout=dropout, seed=seed)[0]

    def encode_counted(
        self, form: Form, *, dropout: float = 0.0, seed: int = 0
    ) -> tuple[Example | Unusable, int]:
        """Return the same, and how many ids the row had before it was cut.

        What comes after the last supervised id teaches nothing, and does not count.
        """
        found = self._ids(form, dropout, seed)
        if isinstance(found, Unusable):
            return found, 0
        ids = np.array(found.ids, dtype=np.int32)
        supervised = np.array(found.supervised, dtype=np.bool_)
        if not self._config.mask_prompt:
            supervised[:] = True
        supervised[0] = False
        if not supervised.any():
            return NO_ANSWER, len(ids)
        last = int(np.flatnonzero(supervised)[-1]) + 1
        ids, supervised = ids[:last], supervised[:last]
        kept = self._kept(ids)
        if kept is None:
            return TOO_LONG, last
        ids, supervised = ids[kept], supervised[kept]
        supervised[0] = False
        return (Example(ids, supervised) if supervised.any() else NOTHING_LEFT), last

    def _kept(self, ids: np.ndarray) -> np.ndarray | None:
        """Return the places that are kept; None: the row is left out."""
        count, most = len(ids), self._max_length
        places = np.arange(count)
        if count <= most:
            return places
        match self._config.overflow:
            case "drop":
                return None
            case "truncate-right":
                return places[:most]
            case "truncate-left":
                begins = int(self._begin is not None and ids[0] == self._begin)
                return np.concatenate([places[:begins], places[count - most + begins :]])

    def _ids(self, form: Form, dropout: float, seed: int) -> SupervisedIds | Unusable:
        how = {"dropout": dropout, "seed": seed} if dropout else {}
        if isinstance(form, Conversation):
            return self._conversation(form, how)
        if isinstance(form, Completion):
            if not form.completion:
                return EMPTY
            if self._template is None:
                return encode_completion(self._tokenizer, form.prompt, form.completion, **how)
            asked = {"role": "user", "content": form.prompt}
            answer = {"role": "assistant", "content": form.completion}
            return self._conversation(Conversation([asked, answer]), how)
        if not form.text:
            return EMPTY_TEXT
        return encode_passage(self._tokenizer, form.text, **how)

    def _conversation(self, form: Conversation, how: dict) -> SupervisedIds | Unusable:
        turns = [i for i, m in enumerate(form.messages) if m["role"] == "assistant"]
        turns = turns[-1:] if self._config.turns == "last" else turns
        learned = {i for i in turns if i not in form.unlearned}
        if not learned:
            return NO_ANSWER
        if not any(_says(form.messages[i]) for i in learned):
            return EMPTY
        if self._template is None:
            raise DataError(
                "a conversation needs a chat template, and there is none: give --template "
                "alpaca, or another one that this base knows the control tokens of"
            )
        return encode_conversation(
            self._template,
            self._tokenizer,
            form.messages,
            tools=form.tools,
            learned=learned,
            **how,
        )


def _says(message: object) -> bool:
    assert isinstance(message, dict)
    return any(value for name, value in message.items() if name != "role")
