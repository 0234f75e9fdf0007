"""A heap of (count, pair): the most frequent pair first, of equally frequent ones the smaller ids.

It is one int64 array (m, 2) of counts and keys. A node has four children, which share a cache line.
Counts may be out of date, but never too small: whoever takes the first item must look.
"""

from mlxgpt.text.compiled.jit import helper
from mlxgpt.text.compiled.loads import U


@helper
def _comes_first(count, key, other_count, other_key):
    """Say whether the first of two pairs is merged before the other."""
    return count > other_count or (count == other_count and key < other_key)


@helper
def push(heap, size, count, key):
    """Add an item to the `size` ones of the heap."""
    i = size
    while i > 0:
        above = (i - 1) >> 2
        if not _comes_first(count, key, heap[U(above), 0], heap[U(above), 1]):
            break
        heap[U(i), 0] = heap[U(above), 0]
        heap[U(i), 1] = heap[U(above), 1]
        i = above
    heap[U(i), 0] = count
    heap[U(i), 1] = key


@helper
def replace_first(heap, size, count, key):
    """Put an item in the place of the first of `size` ones."""
    i = 0
    while True:
        below = 4 * i + 1
        if below >= size:
            break
        best = below
        best_count, best_key = heap[U(below), 0], heap[U(below), 1]
        for child in range(below + 1, min(below + 4, size)):
            if _comes_first(heap[U(child), 0], heap[U(child), 1], best_count, best_key):
                best = child
                best_count, best_key = heap[U(child), 0], heap[U(child), 1]
        if not _comes_first(best_count, best_key, count, key):
            break
        heap[U(i), 0] = best_count
        heap[U(i), 1] = best_key
        i = best
    heap[U(i), 0] = count
    heap[U(i), 1] = key
