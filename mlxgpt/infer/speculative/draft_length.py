"""How many tokens to guess ahead for a text, from how its guesses have fared. No MLX."""

from mlxgpt.config import require
from mlxgpt.infer.speculative.draft_costs import DraftCosts

_START = 0.7
"""The rate that a text begins with; wrong in either direction for a few steps at most."""
_WEIGHT = 0.1
"""Weight of one more tested guess in the running rate."""
_PROBE_AFTER = 16
"""After so many steps without a guess one is made, to see whether they have become good."""

_STANDARD = DraftCosts()


class DraftLength:
    """The draft length of one text; make one for each, and keep it if the text is preempted.

    With the rate a at which guesses are accepted, a draft of k tokens gives 1 + a + ... + a^k
    tokens a step on average (Leviathan et al., 2023, eq. 1). The length that gives most for its
    cost is taken, of 0, 1, 2, 4, 8, ... and `most`: few different ones, so that many texts of a
    step have the same. With `adapt` false it is always `most`. Raises `ConfigError` for `most`
    below 0.

    The length depends on the history of this text, and on the costs. Tokens of greedy texts, and
    of those whose guesses were proposed for certain, do not depend on the length, so costs may be
    measured ones. Guesses that were drawn use up other random numbers than plain tokens: there the
    costs must be fixed ones (`DraftCosts.for_sizes`), or the same request would get other tokens,
    of the same distribution, beside other neighbours or on a slower machine.
    """

    def __init__(self, most: int, *, adapt: bool = True) -> None:
        require(most >= 0, f"the longest draft must be 0 or above; got {most}")
        self._most = most
        self._adapt = adapt
        self._rate = _START
        self._idle = 0
        powers = (2**i for i in range(most.bit_length()))
        self._lengths = sorted({0, most, *powers})

    @property
    def rate(self) -> float:
        """Share of the tested guesses that were accepted, the recent ones above all."""
        return self._rate

    def choose(self, costs: DraftCosts | None = None) -> int:
        """Return how many tokens to guess now; None: the costs of `DraftCosts()`."""
        if not self._adapt:
            return self._most
        costs = costs or _STANDARD
        best = max(self._lengths, key=lambda count: self._gain(count, costs))
        worth_it = costs.step(1) < 2  # else not even guesses that are always right
        if best == 0 and worth_it and self._idle >= _PROBE_AFTER:
            return min(1, self._most)
        return best

    def update(self, drafted: int, accepted: int) -> None:
        """A step gave this text a token, with `drafted` guesses of which `accepted` were kept.

        To be told of each such step, also without guesses. Only the guesses up to the first wrong
        one count: of the rest nothing is known.
        """
        assert 0 <= accepted <= drafted
        self._idle = 0 if drafted else self._idle + 1
        for place in range(min(accepted + 1, drafted)):
            self._rate += _WEIGHT * ((place < accepted) - self._rate)

    def _gain(self, count: int, costs: DraftCosts) -> float:
        """Tokens for the cost of one plain step."""
        return sum(self._rate**i for i in range(count + 1)) / costs.step(count)
