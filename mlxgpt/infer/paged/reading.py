"""Queries and one layer's pool -> attention of rows that compute equally many tokens.

A row's keys may lie in several tiles, in several groups. Each tile gives its part of the softmax's
numerator and denominator, relative to the row's highest score; the parts are summed.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxgpt.infer.paged.groups import Group
from mlxgpt.infer.paged.softmax_weights import weights_function
from mlxgpt.infer.paged.visibility import visibility

_FEW_SCORES = 2048
"""Up to so many scores MLX's softmax is faster: there the number of operations counts."""


class _Part:
    """The tiles of one group: U of them, W slots wide, for R queries of each key/value head."""

    def __init__(
        self, group: Group, positions: Sequence[int], queries: int, window: int | None
    ) -> None:
        self._group = group
        self.rows = [t.row if t else None for t in group.tiles]
        self.in_order = self.rows == list(range(len(positions)))
        self._owners = None if self.in_order else mx.array([row or 0 for row in self.rows])
        seen = visibility(group, positions, queries, window)
        self._seen = None if seen is None else mx.array(seen[:, None])  # (U, 1, T, W)
        self._queries = queries
        self._ones = mx.ones((group.width, 1))

    def own(self, x: mx.array) -> mx.array:
        """Return what belongs to each tile's row: (Hkv, rows, ...) -> (Hkv, U, ...)."""
        return x if self._owners is None else mx.take(x, self._owners, axis=1)

    def scores(self, q: mx.array, pool: Sequence[mx.array]) -> mx.array:
        """Return (Hkv, U, R, W) for q (Hkv, rows, R, D) and a layer's segments, each flat."""
        q = self.own(q)
        scores = self._each(q, pool, q.shape[0], q.shape[-1], values=False)
        if self._seen is None:
            return scores
        heads, tiles, every, width = scores.shape
        shape = (heads, tiles, every // self._queries, self._queries, width)
        return mx.where(self._seen, scores.reshape(shape), -float("inf")).reshape(scores.shape)

    def weighted(self, weights: mx.array, pool: Sequence[mx.array], head_dim: int) -> mx.array:
        """Return the weighted values, (Hkv, U, R, D)."""
        return self._each(weights, pool, weights.shape[0], head_dim, values=True)

    def sums(
        self, weights: mx.array, pool: Sequence[mx.array], head_dim: int
    ) -> tuple[mx.array, mx.array]:
        """Return the weighted values (Hkv, U, R, D), and the sums of the weights (Hkv, U, R, 1)."""
        # The product with ones is faster than a sum.
        return self.weighted(weights, pool, head_dim), weights @ self._ones

    def _each(
        self, x: mx.array, pool: Sequence[mx.array], heads: int, head_dim: int, *, values: bool
    ) -> mx.array:
        """Multiply x (Hkv, U, R, ...) with the keys or the values of each view."""
        products, at = [], 0
        for view in self._group.views:
            array = pool[view.segment]
            head_size = array.size // (2 * heads)
            tiles = mx.as_strided(
                array,
                (heads, view.number, self._group.width, head_dim),
                (head_size, view.step * head_dim, head_dim, 1),
                heads * head_size * values + view.start * head_dim,
            )
            right = tiles if values else tiles.swapaxes(-1, -2)
            if self._group.shared:
                product = x.reshape(heads, 1, -1, x.shape[-1]) @ right
                return product.reshape(*x.shape[:-1], right.shape[-1])
            mine = x if len(self._group.views) == 1 else x[:, at : at + view.number]
            products.append(mine @ right)
            at += view.number
        return products[0] if len(products) == 1 else mx.concatenate(products, axis=1)


class Reading:
    """Attention of B rows with T queries each. Made once a step and window, for every layer."""

    def __init__(
        self, groups: Sequence[Group], positions: Sequence[int], queries: int, window: int | None
    ) -> None:
        """`positions` are those of each row's first query."""
        self._count, self._queries = len(positions), queries
        self._parts = [_Part(group, positions, queries, window) for group in groups]
        self._in_order = all(part.in_order for part in self._parts)
        if self._in_order:
            return
        places: list[list[int]] = [
            [] for _ in positions
        ]  # of each row among the tiles of all parts
        for place, row in enumerate(row for part in self._parts for row in part.rows):
            if row is not None:
                places[row].append(place)
        most = max(len(p) for p in places)
        # Taken for the highest score, so that one tile may stand several times.
        self._places = mx.array([p + p[:1] * (most - len(p)) for p in places])
        self._single = len(self._parts) == 1 and most == 1
        if not self._single:
            tiles = sum(len(part.rows) for part in self._parts)
            belongs = np.zeros((self._count, tiles), dtype=np.float32)
            for row, own in enumerate(places):
                belongs[row, own] = 1
            self._belongs = mx.array(belongs)

    def __call__(self, q: mx.array, pool: Sequence[mx.array], kv_heads: int) -> mx.array:
        """Return (B * T, H, D) for q (B * T, H, D); `pool` holds a layer's segments, each flat."""
        _, heads, d = q.shape
        b, t, group = self._count, self._queries, heads // kv_heads
        rows = q.reshape(b, t, kv_heads, group, d).transpose(2, 0, 3, 1, 4)
        rows = rows.reshape(kv_heads, b, group * t, d)
        scores = [part.scores(rows, pool) for part in self._parts]
        if len(scores) == 1 and self._in_order and scores[0].size <= _FEW_SCORES:
            weights = mx.softmax(scores[0] * d**-0.5, axis=-1)
            return self._by_token(self._parts[0].weighted(weights, pool, d))
        tops = self._tops([s.max(axis=-1, keepdims=True) for s in scores])
        exp = weights_function(d**-0.5)
        sums = [
            part.sums(exp(s, top), pool, d)
            for part, s, top in zip(self._parts, scores, tops, strict=True)
        ]
        out = self._quotient([values for values, _ in sums], [total for _, total in sums])
        return self._by_token(out)

    def _by_token(self, out: mx.array) -> mx.array:
        """Put (Hkv, B, G * T, D) into the order of the queries, (B * T, H, D)."""
        kv_heads, b, every, d = out.shape
        t = self._queries
        out = out.reshape(kv_heads, b, every // t, t, d).transpose(1, 3, 0, 2, 4)
        return out.reshape(b * t, kv_heads * every // t, d)

    def _tops(self, tops: list[mx.array]) -> list[mx.array]:
        """Return the highest score of each tile's row; `tops` (Hkv, U, R, 1) are those of tiles."""
        if self._in_order:
            highest = tops[0]
            for other in tops[1:]:
                highest = mx.maximum(highest, other)
            return [highest] * len(tops)
        if self._single:
            return tops
        every = tops[0] if len(tops) == 1 else mx.concatenate(tops, axis=1)
        highest = mx.take(every, self._places, axis=1).max(axis=2)
        return [part.own(highest) for part in self._parts]

    def _quotient(self, values: list[mx.array], totals: list[mx.array]) -> mx.array:
        """Return the weighted mean of each row's values, (Hkv, B, R, D)."""
        if self._in_order:
            return sum(values[1:], values[0]) / sum(totals[1:], totals[0])
        if self._single:
            return mx.take(values[0] / totals[0], self._places[:, 0], axis=1)
        return self._of_rows(values) / self._of_rows(totals)

    def _of_rows(self, tiles: list[mx.array]) -> mx.array:
        """Sum what the tiles of each row give: (Hkv, U, R, n) of all parts -> (Hkv, B, R, n)."""
        every = tiles[0] if len(tiles) == 1 else mx.concatenate(tiles, axis=1)
        heads, count, queries, n = every.shape
        summed = self._belongs @ every.reshape(heads, count, queries * n)
        return summed.reshape(heads, self._count, queries, n)
