"""mlx-lm's batch generator at its own settings, driven as the engine is: greedy, to the end."""

import copy
import time
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from benchmarks.inference.workload import Arrival


def batch(model: Any, arrivals: Sequence[Arrival]) -> tuple[dict[int, list[int]], float]:
    """Serve the requests, each at its time; return the tokens of each, and the seconds from the
    first token of the last to begin until the end, in which nothing but decoding is done."""
    from mlx_lm.generate import BatchGenerator

    generator = BatchGenerator(model, stop_tokens=[])
    waiting = list(enumerate(arrivals))
    index: dict[int, int] = {}
    got: dict[int, list[int]] = {i: [] for i in range(len(arrivals))}
    left = len(arrivals)
    began = decoding = time.perf_counter()
    while left:
        now = time.perf_counter() - began
        due = [w for w in waiting if w[1].at <= now]
        waiting = waiting[len(due) :]
        if due:
            uids = generator.insert([a.prompt for _, a in due], [a.tokens for _, a in due])
            index |= dict(zip(uids, (i for i, _ in due), strict=True))
        if len(arrivals) - len(waiting) == len(arrivals) - left:  # all that came have gone
            time.sleep(0.001)
            continue
        for response in generator.next()[1]:
            tokens = got[index[response.uid]]
            tokens.append(response.token)
            if len(tokens) == 1:
                decoding = time.perf_counter()
            left -= response.finish_reason is not None
    generator.close()
    return got, time.perf_counter() - decoding


def batch_after_prefix(
    model: Any, prefix: list[int], arrivals: Sequence[Arrival]
) -> dict[int, list[int]]:
    """Serve requests that begin with `prefix` from copies of a cache that holds it."""
    from mlx_lm.generate import BatchGenerator
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    model(mx.array([prefix]), cache=cache)
    mx.eval([c.state for c in cache])
    generator = BatchGenerator(model, stop_tokens=[])
    rests = [a.prompt[len(prefix) :] for a in arrivals]
    caches = [copy.deepcopy(cache) for _ in arrivals]
    uids = generator.insert(rests, [a.tokens for a in arrivals], caches=caches)
    index = {uid: i for i, uid in enumerate(uids)}
    got: dict[int, list[int]] = {i: [] for i in range(len(arrivals))}
    left = len(arrivals)
    while left:
        for response in generator.next()[1]:
            got[index[response.uid]].append(response.token)
            left -= response.finish_reason is not None
    generator.close()
    return got
