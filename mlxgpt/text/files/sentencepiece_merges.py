"""Pieces with scores, as SentencePiece's BPE has them -> merges in their order.

SentencePiece joins the two neighbours whose piece has the best score, and keeps no list of pairs.
So each way to cut a piece into two pieces is a merge, and those of a better piece come first.
"""

from collections.abc import Mapping


def merges_by_score(pieces: Mapping[str, float]) -> list[list[str]]:
    """Return the merges [left, right] for piece -> score, the first to be made first.

    Of one piece the cut with the longest left part comes first, as in the files that transformers
    converts. (SentencePiece itself would take the leftmost in the text.)
    """
    found: list[tuple[float, int, str]] = []
    for piece, score in pieces.items():
        for at in range(1, len(piece)):
            if piece[:at] in pieces and piece[at:] in pieces:
                found.append((-score, -at, piece))
    found.sort(key=lambda entry: entry[:2])
    return [[piece[:-at], piece[-at:]] for _, at, piece in found]
