"""The engine, driven through a workload, with what its cache holds at each step."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.inference.workload import Arrival
from mlxgpt.infer import SamplingParams
from mlxgpt.infer.engine import Engine


@dataclass
class Served:
    """What came of it."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    ttft: dict[int, float] = field(default_factory=dict)
    """Seconds from each arrival to its first token."""
    decoding: float = 0.0
    """Seconds from the first token of the last to begin until the end."""
    worst_waste: int = 0
    """The most slots that a running text held beyond the tokens in its cache."""


def serve(engine: Engine, arrivals: Sequence[Arrival], temperature: float = 0.0) -> Served:
    """Serve the requests, each at its time."""
    waiting = list(enumerate(arrivals))
    index: dict[int, int] = {}
    served = Served()
    began = decoding = time.perf_counter()
    while waiting or engine.active:
        now = time.perf_counter() - began
        while waiting and waiting[0][1].at <= now:
            i, arrival = waiting.pop(0)
            params = SamplingParams(temperature=temperature, max_tokens=arrival.tokens, seed=i)
            index[engine.add(arrival.prompt, params)] = i
            served.tokens[i] = []
        if not engine.active:
            time.sleep(0.001)
            continue
        outputs = engine.step()
        size = engine.settings.block_size
        for text in engine.running:
            kept = text.table.length - text.table.dropped
            served.worst_waste = max(served.worst_waste, len(text.table.blocks) * size - kept)
        for output in outputs:
            i = index[output.request_id]
            if output.token_ids and i not in served.ttft:
                decoding = time.perf_counter()
                served.ttft[i] = decoding - began - arrivals[i].at
            served.tokens[i] += output.token_ids
    served.decoding = time.perf_counter() - decoding
    return served
