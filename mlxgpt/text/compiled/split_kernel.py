"""Bytes of a text -> where its words begin, by the rules of `split_rules`.

One pass with hardly a branch: the classes of the last four characters are an index into the rule's
table, and every character is written down as a beginning that the next one replaces if it is none.
The text is UTF-8; whatever else comes is cut somewhere, without reading outside of the buffer.
"""

import numpy as np

from mlxgpt.text.compiled.char_classes import BLANK, EDGE, LINE_END
from mlxgpt.text.compiled.jit import helper, kernel
from mlxgpt.text.compiled.loads import U, byte_at
from mlxgpt.text.compiled.split_rules import (
    ANY_CASE,
    BORDER,
    CONTRACTION,
    DIGITS,
    LINE,
    WHOLE_TAIL,
)

_EDGES = U(2**64 - 1)  # nothing but the class EDGE
_FOUR = U(0xFFF)


@kernel
def split_words(text, start, limit, stop, flags, most_digits, borders, pages, classes, begins):
    """Write where the words of text[start:limit] begin to `begins`, int64; return how many.

    `text` is padded, `stop` its end, and a word begins at `start`. Of what lies before a `limit`
    that is not `stop` the last two words are not final. There are limit - start beginnings at most
    and `begins` has room for two more.
    """
    count = 0
    recent = _EDGES  # the classes of the last characters, three bits each
    here = start  # the character that the answer is about: the last but one
    i = start
    while i < limit:
        first = byte_at(text, i)
        if first < 128:
            kind = np.int64(classes[U(first)])
            width = 1
        else:
            kind, width = _wide_class(text, i, pages, classes)
        recent = recent << U(3) | U(kind)
        answer = np.int64(borders[recent & _FOUR])
        begins[U(count)] = here
        if answer > BORDER:
            if (answer & CONTRACTION) != 0:
                end = _contraction(text, here - 1, stop, flags)
                if end > here:
                    recent = _EDGES
                    here = i = end
                    continue
            elif (answer & DIGITS) != 0:
                answer = 1 if _is_full(text, begins[U(count - 1)], here, most_digits) else 0
            elif (answer & LINE) != 0:
                count -= _is_early(text, begins, count, pages, classes)
                answer = 0
        count += answer & BORDER
        here = i
        i += width
    if limit >= stop:  # the last character has none behind it
        recent = recent << U(3) | U(EDGE)
        answer = np.int64(borders[recent & _FOUR])
        last = np.int64(recent >> U(3) & U(7))
        begins[U(count)] = here
        if here < stop:
            if (answer & CONTRACTION) != 0:
                if _contraction(text, here - 1, stop, flags) > here:
                    answer = 0
            elif (answer & DIGITS) != 0:
                answer = 1 if _is_full(text, begins[U(count - 1)], here, most_digits) else 0
            tail = (flags & WHOLE_TAIL) != 0 and last >= BLANK and last < LINE_END
            count += answer & BORDER
            if (answer & LINE) != 0 or tail:
                count -= _is_early(text, begins, count, pages, classes)
    return count


@helper
def _wide_class(text, i, pages, classes):
    """Return the class and the width in bytes of the character at `i`, which is not ASCII."""
    first = byte_at(text, i)
    point = byte_at(text, i + 1) & 63
    if first < 0xE0:
        point |= (first & 31) << 6
        width = 2
    else:
        point = point << 6 | (byte_at(text, i + 2) & 63)
        if first < 0xF0:
            point |= (first & 15) << 12
            width = 3
        else:
            point = point << 6 | (byte_at(text, i + 3) & 63) | (first & 7) << 18
            width = 4
    return np.int64(classes[U(byte_at(pages, point >> 8) << 8 | (point & 255))]), width


@helper
def _contraction(text, i, stop, flags):
    """Return the end of the 's 't 'd 'm 'll 've 're whose apostrophe is at `i`, or `i`."""
    small = 32 if (flags & ANY_CASE) != 0 else 0
    a = byte_at(text, i + 1)
    b = byte_at(text, i + 2)
    width = 0
    if small != 0 and a == 0xC5 and b == 0xBF:  # the long s (U+017F) is an S in any case
        width = 3
    a |= small
    b |= small
    if a == 115 or a == 116 or a == 100 or a == 109:
        width = 2
    elif (a == 108 and b == 108) or (b == 101 and (a == 118 or a == 114)):
        width = 3
    return i + width if i + width <= stop else i


@helper
def _is_full(text, begin, end, most):
    """Return whether text[begin:end] has `most` characters."""
    n = 0
    for k in range(begin, end):
        n += (byte_at(text, k) & 0xC0) != 0x80
    return n >= most


@helper
def _is_early(text, begins, count, pages, classes):
    """Return 1 if the last beginning follows a line end that is part of white space, else 0.

    Such a line end was taken for the last one of its white space, which goes on. If the line end
    belongs to punctuation it is none of that white space.
    """
    if count < 2:
        return 0
    begin = begins[U(count - 2)]
    k = begins[U(count - 1)]
    if byte_at(text, k - 1) != 10 and byte_at(text, k - 1) != 13:
        return 0
    while k > begin and (byte_at(text, k - 1) == 10 or byte_at(text, k - 1) == 13):
        k -= 1
    if k == begin:
        return 1
    k -= 1
    while k > begin and (byte_at(text, k) & 0xC0) == 0x80:
        k -= 1
    if byte_at(text, k) < 128:
        return 1 if classes[U(byte_at(text, k))] >= BLANK else 0
    return 1 if _wide_class(text, k, pages, classes)[0] >= BLANK else 0
