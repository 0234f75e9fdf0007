"""Attention over a pool where keys and values lie, for float32 on a CPU: nothing is copied.

What a text has stored is a few stretches of neighbouring slots. Stretches of many texts are read by
one matrix product, as views of the pool; see grouping.py for which. The plain twin is gathered.py.

A view may also cover slots of other texts, or of none. Scores there are replaced, and their weights
are exactly 0, so that no key that lies there matters. 0 times a value is 0 for finite values only,
which is why values that are not finite are stored as 0. The keys that come with them are stored as
they are, so that the text itself gives no numbers any more, and no other text notices.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx

from mlxgpt.infer.paged.grouping import Cost, grouped
from mlxgpt.infer.paged.groups import Group, Tile, View
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.reading import Reading
from mlxgpt.infer.paged.shared_stretches import shared_stretches
from mlxgpt.infer.paged.softmax_weights import finite_function
from mlxgpt.infer.paged.step_attention import StepRow, new_positions, new_slots
from mlxgpt.infer.paged.stretches import Stretch, between, stretches

_PIECE = 128
"""Queries of one text that are computed together: each piece sees fewer keys than the next."""
_TOGETHER = 16
"""Texts that compute more tokens than this are computed one by one: their products are large."""
_WORTH_PARTING = 64
"""Keys before a piece from which on only those inside of the piece are masked."""
_FEW = 8
"""Stretches of a long piece that are read one by one."""


class _Piece(NamedTuple):
    """Tokens of a row that are computed together; `token` is the place of the first in the step."""

    row: int
    token: int
    position: int


class _Bucket(NamedTuple):
    """Pieces of `queries` tokens each."""

    pieces: list[_Piece]
    queries: int

    @property
    def tokens(self) -> list[int]:
        return [p.token + i for p in self.pieces for i in range(self.queries)]


class RunViews:
    """`StepAttention` by views of the pool."""

    def __init__(self, pool: Pool, rows: Sequence[StepRow]) -> None:
        self._pool, self._rows = pool, list(rows)
        self._positions = mx.array(new_positions(self._rows), dtype=mx.int32)
        self._places = pool.places(new_slots(self._rows, pool.block_size))
        self._stretches = [stretches(r.table, pool.block_size, pool.segments) for r in self._rows]
        self._longest = max(r.table.length - r.table.dropped for r in self._rows)
        self._buckets = _buckets(self._rows)
        order = [token for bucket in self._buckets for token in bucket.tokens]
        self._selections = [_selection(bucket.tokens) for bucket in self._buckets]
        self._back: mx.array | None = None
        if order != list(range(len(order))):
            self._back = mx.argsort(mx.array(order))
        self._readings: dict[tuple[int | None, int], list[Reading]] = {}

    @property
    def positions(self) -> mx.array:
        return self._positions

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        kv_heads = k.shape[1]
        self._pool.write(layer, self._places, k, finite_function()(v))
        arrays = [segment[layer].reshape(-1) for segment in self._pool.arrays]
        outputs = [
            reading(q[selection], arrays, kv_heads)
            for reading, selection in zip(
                self.readings(window, q.shape[1] // kv_heads), self._selections, strict=True
            )
        ]
        out = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=0)
        return out if self._back is None else out[self._back]

    def readings(self, window: int | None, heads: int) -> list[Reading]:
        """Return what is computed for a window; `heads` query heads share a key/value head."""
        if window is not None and self._longest <= window:
            window = None
        if (window, heads) not in self._readings:
            self._readings[window, heads] = [
                Reading(
                    self.groups(bucket, window, heads),
                    [piece.position for piece in bucket.pieces],
                    bucket.queries,
                    window,
                )
                for bucket in self._buckets
            ]
        return self._readings[window, heads]

    def groups(self, bucket: _Bucket, window: int | None, heads: int) -> list[Group]:
        """Return the groups that hold what the queries of a bucket see."""
        texts = [self._seen(piece, bucket.queries, window) for piece in bucket.pieces]
        cost = Cost.of(heads * bucket.queries, self._pool.kv_heads, self._pool.head_dim)
        if len(texts) == 1:
            parts = _parted(texts[0], bucket.pieces[0].position, bucket.queries)
            if bucket.queries > _TOGETHER and len(parts) <= _FEW:
                return [_alone(part, [0]) for part in parts]
            texts = [parts]

        def worthwhile(rows: int, count: int) -> bool:
            return (rows - 1) * count * cost.slot > 2 * (cost.group + cost.view)

        shared, rest = shared_stretches(texts, worthwhile)
        tiles = [_tile(row, stretch) for row, text in enumerate(rest) for stretch in text]
        together = [_alone(stretch, rows, shared=True) for stretch, rows in shared]
        if not tiles:
            return together
        slots, size = self._pool.segment_slots, self._pool.block_size
        return together + grouped(tiles, slots, size, cost)

    def _seen(self, piece: _Piece, count: int, window: int | None) -> list[Stretch]:
        """Return the stretches of all keys that any of `count` queries sees."""
        begin = 0 if window is None else piece.position - window + 1
        return between(self._stretches[piece.row], begin, piece.position + count)


def _buckets(rows: Sequence[StepRow]) -> list[_Bucket]:
    """Cut rows into pieces; put short ones of equal length together."""
    short: dict[int, list[_Piece]] = defaultdict(list)
    long: list[_Bucket] = []
    token = 0
    for i, row in enumerate(rows):
        for begin in range(0, row.count, _PIECE):
            count = min(_PIECE, row.count - begin)
            piece = _Piece(i, token + begin, row.position + begin)
            if count <= _TOGETHER:
                short[count].append(piece)
            else:
                long.append(_Bucket([piece], count))
        token += row.count
    buckets = [_Bucket(pieces, count) for count, pieces in short.items()] + long
    return sorted(buckets, key=lambda bucket: bucket.pieces[0].token)


def _selection(tokens: list[int]) -> slice | mx.array:
    """Return an index of these tokens; a slice costs no copy."""
    if tokens == list(range(tokens[0], tokens[0] + len(tokens))):
        return slice(tokens[0], tokens[0] + len(tokens))
    return mx.array(tokens)


def _parted(text: list[Stretch], position: int, count: int) -> list[Stretch]:
    """Part what a long piece sees in full from what its first queries do not see yet."""
    if count <= _TOGETHER or not text or position - text[0].first < _WORTH_PARTING:
        return text
    return between(text, 0, position) + between(text, position, position + count)


def _tile(row: int, stretch: Stretch) -> Tile:
    return Tile(row, stretch.segment, stretch.start, stretch.first, 0, stretch.size)


def _alone(stretch: Stretch, rows: list[int], *, shared: bool = False) -> Group:
    """Return a stretch as a group of its own, read for `rows`."""
    view = View(stretch.segment, stretch.start, 0, 1)
    return Group(stretch.size, [view], [_tile(row, stretch) for row in rows], shared)
