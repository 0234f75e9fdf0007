"""The merges of a BPE over characters -> one score for each token, as a GGUF "llama" vocabulary.

llama.cpp then knows tokens and scores, but no merges: of all neighbours that together are a token
it joins those whose token has the highest score, the leftmost first. That gives the ids of the
merges if they can be told in this way, as those can that were made from a SentencePiece model; for
others there is an error.
"""

from mlxgpt.errors import TokenizerError
from mlxgpt.text.bpe.bpe_model import BPEModel


def merge_scores(model: BPEModel) -> list[float]:
    """Return a score for each id of `model`: the earlier a token is made, the higher.

    Raises `TokenizerError` naming two tokens for which scores would do something else.
    """
    scores = [0.0] * len(model.tokens)
    place = 0
    products, pairs = model.products.tolist(), model.pairs.tolist()
    for rank, product in enumerate(products):
        if rank and products[rank - 1] == product:
            continue
        if scores[product]:
            raise _different(model, pairs[rank], "merged at two different times")
        place += 1
        scores[product] = float(-place)
    _check_neighbours(model, set(products), {(left, right) for left, right in pairs})
    return scores


def _check_neighbours(model: BPEModel, products: set[int], merges: set[tuple[int, int]]) -> None:
    """See that every two tokens which together are a token have a merge.

    Only tokens count that a text can lead to: characters, and what merges make.
    """
    assert model.char_ids is not None
    made = {token.decode("utf-8"): i for i in products if (token := model.tokens[i]) is not None}
    made |= model.char_ids
    apart = {*model.byte_ids, *model.char_ids.values()}
    for i, token in enumerate(model.tokens):
        if token is None or i in apart:
            continue
        text = token.decode("utf-8")
        for middle in range(1, len(text)):
            left, right = made.get(text[:middle]), made.get(text[middle:])
            if left is not None and right is not None and (left, right) not in merges:
                raise _different(model, (left, right), "a token without a merge")


def _different(model: BPEModel, pair: tuple[int, int] | list[int], what: str) -> TokenizerError:
    left, right = ((model.tokens[i] or b"").decode("utf-8", "replace") for i in pair)
    return TokenizerError(
        f"llama.cpp cannot follow the merges of this tokenizer: '{left}' + '{right}' is {what}, "
        "and a GGUF file holds only scores; export to hf instead"
    )
