"""What one text has computed in a step: its next tokens, and guesses behind them. No MLX."""

from dataclasses import dataclass

from mlxgpt.infer.engine.sequence import Sequence


@dataclass(frozen=True)
class Row:
    """Tokens [start, start + len(token_ids)) of a sequence are computed now.

    The last `drafted` of them are guesses, not part of `sequence.token_ids`. `wants_logits` says
    whether the step reaches the sequence's last token, so that a new one is to be chosen.
    """

    sequence: Sequence
    start: int
    token_ids: list[int]
    drafted: int
    wants_logits: bool

    @classmethod
    def placed(cls, sequence: Sequence, start: int, guesses: list[int]) -> "Row":
        """Return the row of all that has been placed from `start` on, `guesses` at the end."""
        end = sequence.table.length - len(guesses)
        token_ids = sequence.token_ids[start:end] + guesses
        return cls(sequence, start, token_ids, len(guesses), end == len(sequence.token_ids))

    def could_give(self, token_ids: list[int]) -> bool:
        """Whether these may be the tokens chosen: all but the last are guesses of this row."""
        if not self.wants_logits:
            return not token_ids
        guesses = self.token_ids[len(self.token_ids) - self.drafted :]
        taken = token_ids[:-1]
        return 0 < len(token_ids) <= self.drafted + 1 and taken == guesses[: len(taken)]
