"""Scaled logits, settings of top-k, top-p and min-p -> the lowest value that is kept in each row.

Each filter keeps all values from some value on, so that of several the highest such value counts.
"""

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxgpt.infer.sampling.exponential import exp
from mlxgpt.infer.sampling.largest import k_largest
from mlxgpt.infer.sampling.params import SamplingParams
from mlxgpt.infer.sampling.row_sums import row_sums, running_sums

_FIRST_LOOK = 256
"""How many of the largest are looked through first for the mass of top-p."""


def lowest_kept(x: mx.array, weights: mx.array, params: Sequence[SamplingParams]) -> mx.array:
    """Return the least value that is kept, (R, 1), of rows x (R, V) whose highest is 0.

    `weights` is exp(x). On a CPU, top-p without top-k waits for `x`; see `waits`.
    """
    size = x.shape[-1]
    floor = mx.array([[math.log(p.min_p) if p.min_p else -math.inf] for p in params])
    by_rank = [i for i, p in enumerate(params) if _top_k(p, size)]
    by_mass = [i for i, p in enumerate(params) if not _top_k(p, size) and _top_p(p)]
    for rows, kept in ((by_rank, _by_rank), (by_mass, _by_mass)):
        if rows:
            chosen = [params[i] for i in rows]
            own = kept(_rows(x, rows), _rows(weights, rows), chosen)
            floor = mx.maximum(floor, _spread(own, rows, len(params), -math.inf))
    return floor


def filtering(params: SamplingParams, size: int) -> bool:
    """Whether any of the filters can remove one of `size` tokens."""
    return bool(_top_k(params, size) or _top_p(params) or params.min_p)


def waits(params: SamplingParams) -> bool:
    """Whether the filters have to see the logits before they are applied.

    On a CPU it saves much to know how many tokens have the mass of top-p; elsewhere MLX sorts all.
    """
    return bool(_top_p(params)) and params.top_k is None and _on_cpu()


def _top_k(params: SamplingParams, size: int) -> int | None:
    k = params.top_k
    return None if params.temperature == 0 or k is None or k >= size else k


def _top_p(params: SamplingParams) -> float | None:
    p = params.top_p
    return None if params.temperature == 0 or p is None or p >= 1 else p


def _by_rank(x: mx.array, weights: mx.array, params: Sequence[SamplingParams]) -> mx.array:
    """Top-k, and top-p of what it leaves."""
    size = x.shape[-1]
    ranks = [_top_k(p, size) or 1 for p in params]
    largest = k_largest(x, max(ranks))
    floor = mx.take_along_axis(largest, mx.array(ranks)[:, None] - 1, axis=-1)
    if not any(_top_p(p) for p in params):
        return floor
    mass = row_sums(weights * (x >= floor))
    return mx.maximum(floor, _nucleus(largest, mass, params)[0])


def _by_mass(x: mx.array, weights: mx.array, params: Sequence[SamplingParams]) -> mx.array:
    """Top-p alone: a few of the largest have the mass in most rows; the others are sorted."""
    mass = row_sums(weights)
    if not _on_cpu():
        return _nucleus(k_largest(x, x.shape[-1]), mass, params)[0]
    floor, reached = _nucleus(k_largest(x, min(_FIRST_LOOK, x.shape[-1])), mass, params)
    left = np.flatnonzero(~np.array(reached)).tolist()
    if not left:
        return floor
    # The logits are there by now, and numpy sorts them many times as fast as MLX.
    whole = mx.array(-np.sort(-np.array(_rows(x, left)), axis=-1))
    below = _nucleus(whole, _rows(mass, left), [params[i] for i in left], exp(whole))[0]
    return mx.minimum(floor, _spread(below, left, len(params), math.inf))


def _nucleus(
    largest: mx.array,
    mass: mx.array,
    params: Sequence[SamplingParams],
    weights: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Return the lowest value of the smallest set with the share top_p of `mass`, (R, 1), and
    whether `largest` (R, n), in falling order, has all of it, (R,). `weights` is its exp."""
    goal = mx.array([[_top_p(p) or math.inf] for p in params]) * mass
    # By MLX's exp at any n, so that a row's outcome does not depend on the k of another.
    ends = running_sums(mx.exp(largest) if weights is None else weights)
    before = mx.pad(ends[:, :-1], [(0, 0), (1, 0)])
    # The likeliest token stays at any p.
    kept = mx.maximum((before < goal).sum(axis=-1, keepdims=True), 1)
    return mx.take_along_axis(largest, kept - 1, axis=-1), (ends[:, -1] >= goal[:, 0])


def _rows(x: mx.array, rows: Sequence[int]) -> mx.array:
    return x if len(rows) == x.shape[0] else x[mx.array(list(rows))]


def _spread(values: mx.array, rows: Sequence[int], count: int, rest: float) -> mx.array:
    """Put values (r, 1) of these rows into (count, 1), with `rest` everywhere else."""
    if len(rows) == count:
        return values
    places = [len(rows)] * count
    for place, row in enumerate(rows):
        places[row] = place
    return mx.concatenate([values, mx.array([[rest]])])[mx.array(places)]


def _on_cpu() -> bool:
    return mx.default_device().type == mx.DeviceType.cpu
