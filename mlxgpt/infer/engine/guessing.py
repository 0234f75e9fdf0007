"""Which texts of a step get guesses, how many, and how they have fared."""

import time
from collections.abc import Mapping, Sequence

from mlxgpt.config import require
from mlxgpt.infer.engine.sequence import Sequence as Text
from mlxgpt.infer.engine.settings import EngineSettings
from mlxgpt.infer.speculative import Draft, DraftCosts, DraftLength, Proposer, StepTimes
from mlxgpt.model import GPT


class Guessing:
    """The proposer of an engine, if it has one, and the draft length of each text."""

    def __init__(
        self, proposer: Proposer | None, model: GPT, num_ids: int, settings: EngineSettings
    ) -> None:
        """Raises `ConfigError` if the proposer may guess ids that the model must not write, or is
        over fewer."""
        if proposer is not None and proposer.num_ids is not None:
            require(
                proposer.num_ids == num_ids,
                f"the draft model guesses among {proposer.num_ids} ids, the model writes "
                f"{num_ids}; give both the same num_ids, that of their tokenizer",
            )
        size = sum(weight.nbytes for weight in model.weights().values())
        self._proposer = proposer
        self._most = settings.num_draft_tokens
        self._adapt = settings.adapt_draft
        self._times = StepTimes()
        self._fixed = DraftCosts.for_sizes(proposer.nbytes if proposer else 0, size)
        self._lengths: dict[Text, DraftLength] = {}
        self.drafted = 0
        self.accepted = 0

    def propose(self, decoding: Sequence[Text]) -> Mapping[Text, Draft]:
        """Return guesses for some of the texts that are due to get a token."""
        proposer = self._proposer
        if proposer is None:
            return {}
        began = time.perf_counter()
        measured = self._times.costs(len(decoding))
        wanted = {}
        for text in decoding:
            length = self._lengths.setdefault(text, DraftLength(self._most, adapt=self._adapt))
            # What a text becomes depends on the number of guesses that were drawn for it, so that
            # may not depend on how fast things went.
            drawn = proposer.draws and text.params.temperature > 0
            most = text.params.max_tokens - text.generated - 1
            count = min(most, length.choose(self._fixed if drawn else measured))
            if count > 0:
                wanted[text] = count
        drafts = proposer.propose(wanted) if wanted else {}
        longest = max((len(draft.token_ids) for draft in drafts.values()), default=0)
        self._times.add_drafting(longest, time.perf_counter() - began)
        return drafts

    def took(self, tokens: int, seconds: float) -> None:
        """A step computed so many tokens, guesses among them, in so many seconds."""
        if self._proposer is not None:
            self._times.add_step(tokens, seconds)

    def checked(self, text: Text, drafted: int, accepted: int) -> None:
        """A text got a token, and of its guesses so many were right."""
        self.drafted += drafted
        self.accepted += accepted
        if text in self._lengths:
            self._lengths[text].update(drafted, accepted)

    def preempted(self, text: Text) -> None:
        """A text has to wait; its guesses so far still tell how the next will fare."""
        if self._proposer is not None:
            self._proposer.forget(text)

    def forget(self, text: Text) -> None:
        """A text has left the engine."""
        if self._proposer is not None:
            self._lengths.pop(text, None)
            self._proposer.forget(text)
