"""Stretches of text -> merges, in the tier that is quicker for so much; both learn the same."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain

from mlxgpt.text.bpe.learned_merges import LearnedMerges, Progress, learn_merges
from mlxgpt.text.bpe.splitting import Splitter
from mlxgpt.text.bpe.word_counts import as_bytes, count_words

_LOOK_EVERY = 1 << 18
"""Characters after which it is asked again whether the kernels are worth it."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What is to be learned; `bpe.learned_merges.learn_merges` says what each setting means."""

    n_tokens: int
    min_frequency: int = 1
    max_token_length: int | None = None
    forbidden: Collection[bytes] = ()
    progress: Progress | None = None

    def plain(self, stretches: Iterable[str], splitter: Splitter) -> LearnedMerges:
        """Learn in Python alone."""
        counts = count_words(stretches, splitter)
        return learn_merges(
            as_bytes(counts),
            self.n_tokens,
            min_frequency=self.min_frequency,
            max_token_length=self.max_token_length,
            forbidden=self.forbidden,
            progress=self.progress,
        )

    def compiled(
        self, stretches: Iterable[str], splitter: Splitter, threads: int = 1
    ) -> LearnedMerges:
        """Learn by the kernels. A pattern that they do not know is applied by `regex`."""
        from mlxgpt.text.compiled import merge_learner
        from mlxgpt.text.compiled.counted_words import CountedWords
        from mlxgpt.text.compiled.counting import count_stretches
        from mlxgpt.text.compiled.split_rules import rule_for

        rule = rule_for(splitter.expressions)
        if rule is None:
            words = CountedWords.of(as_bytes(count_words(stretches, splitter)))
        else:
            words = count_stretches(stretches, rule, threads)
        return merge_learner.learn_merges(
            words,
            self.n_tokens,
            min_frequency=self.min_frequency,
            max_token_length=self.max_token_length,
            forbidden=self.forbidden,
            progress=self.progress,
        )

    def learn(
        self,
        stretches: Iterable[str],
        splitter: Splitter,
        threads: int = 1,
        notice: Callable[[str], None] | None = None,
    ) -> LearnedMerges:
        """Learn in the tier that fits; `notice` is told when kernels have to be compiled."""
        coming = iter(stretches)
        beginning: list[str] = []
        num_bytes = looked_at = 0
        for stretch in coming:
            beginning.append(stretch)
            num_bytes += len(stretch)  # no more than its bytes
            if num_bytes - looked_at < _LOOK_EVERY:
                continue
            from mlxgpt.text.compiled.tier import warm_up, worthwhile

            looked_at = num_bytes
            if worthwhile(num_bytes, "training"):
                warm_up(notice, "training")
                return self.compiled(chain(beginning, coming), splitter, threads)
        return self.plain(beginning, splitter)
