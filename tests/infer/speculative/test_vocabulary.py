"""A draft model for another tokenizer is refused, by the first id that differs."""

import re

import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.infer.speculative import Vocabulary, check_vocabularies

TOKENS = [b"a", b"b", b"ab", b"<eos>", b"<pad>"]
SPECIAL = {"eos": 3, "pad": 4}
SAME = Vocabulary(tokens=TOKENS, special=SPECIAL)


def test_the_same_vocabulary_passes() -> None:
    check_vocabularies(SAME, Vocabulary(tokens=list(TOKENS), special=dict(SPECIAL)))
    check_vocabularies(Vocabulary(tokens=["a"]), Vocabulary(tokens=["a"]))


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (Vocabulary(tokens=TOKENS[:4], special=SPECIAL), "4 tokens, the model 5; id 4 is b'<pad>'"),
        (Vocabulary(tokens=[*TOKENS, b"c"], special=SPECIAL), "id 5 is b'c' for the draft model a"),
        (Vocabulary(tokens=[b"a", b"c", b"xx", *TOKENS[3:]], special=SPECIAL), "id 1 is b'b'"),
        # another size and another token: the first id that differs is the token's
        (Vocabulary(tokens=[b"a", b"c"], special=SPECIAL), "id 1 is b'b' for the model and b'c'"),
        (Vocabulary(tokens=TOKENS, special={"eos": 4, "pad": 3}), "'eos' is id 3 for the model an"),
        (Vocabulary(tokens=TOKENS, special={"eos": 3}), "'pad' is id 4 for the model and missing"),
        (
            Vocabulary(tokens=TOKENS, special=SPECIAL | {"bos": 0}),
            "'bos' is missing for the model and id 0 for the draft",
        ),
        (Vocabulary(tokens=["a", *TOKENS[1:]], special=SPECIAL), "id 0 is b'a' for the model and"),
    ],
)  # fmt: skip
def test_another_vocabulary_is_refused(draft: Vocabulary, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        check_vocabularies(SAME, draft)
    assert "trained with the same tokenizer" in str(caught.value)
    assert "\n" not in str(caught.value)
