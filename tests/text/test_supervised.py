"""Which ids of a conversation are learned: answers with their ends, and not a byte of the rest."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxgpt.errors import TokenizerError
from mlxgpt.text import Tokenizer, train_bpe
from mlxgpt.text.chat_template import ChatTemplate
from mlxgpt.text.supervised import (
    SupervisedIds,
    encode_completion,
    encode_conversation,
    encode_passage,
)
from mlxgpt.text.templates import builtin_template

PARTS = ["hi", " ", "\n", "ok.", "<|endoftext|>", "### Response:", "é😀", "memory", ".m", "<|end"]
contents = st.lists(st.sampled_from(PARTS), max_size=5).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["caller call.memory and ok.me hi hi memory ### Response:\n\nok"] * 6
    return train_bpe(texts, 320)


@pytest.fixture(scope="module")
def alpaca(tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(builtin_template("alpaca"), tokenizer.border_names())


def turns(*said: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]


def stretches(tokenizer: Tokenizer, found: SupervisedIds) -> list[str]:
    """Return the supervised stretches, as text."""
    out: list[list[int]] = []
    before = False
    for i, learned in zip(found.ids, found.supervised, strict=True):
        if learned and not before:
            out.append([])
        if learned:
            out[-1].append(i)
        before = learned
    return [tokenizer.decode(ids) for ids in out]


@settings(max_examples=60, deadline=None)
@given(said=st.lists(contents, min_size=2, max_size=6).filter(lambda x: len(x) % 2 == 0))
def test_answers_and_their_ends_are_learned_and_nothing_else(
    tokenizer: Tokenizer, alpaca: ChatTemplate, said: list[str]
) -> None:
    messages = turns(*said)
    found = encode_conversation(alpaca, tokenizer, messages)
    assert tokenizer.decode(found.ids) == alpaca.render(messages)
    end = tokenizer.special_tokens["<|endoftext|>"]
    wanted = [text + "<|endoftext|>" for text in said[1::2]]
    assert stretches(tokenizer, found) == wanted
    # The literal in a message is text; only the template's own ends act.
    assert found.ids.count(end) == len(said) // 2
    learned = [i for i, s in zip(found.ids, found.supervised, strict=True) if s]
    assert learned.count(end) == len(said) // 2
    for turn in range(1, len(said), 2):
        asked = alpaca.encode(tokenizer, messages[:turn], add_generation_prompt=True)
        if turn == 1:
            assert found.ids[: len(asked)] == asked
    for some in (range(1, len(said), 4), [len(said) - 1]):
        part = encode_conversation(alpaca, tokenizer, messages, learned=some)
        assert tokenizer.decode(part.ids) == alpaca.render(messages)
        assert stretches(tokenizer, part) == [said[i] + "<|endoftext|>" for i in some]
    # What comes before the last answer is what generation sees.
    asked = alpaca.encode(tokenizer, messages[:-1], add_generation_prompt=True)
    assert part.ids[: len(asked)] == asked


@settings(max_examples=60, deadline=None)
@given(prompt=contents, completion=contents)
def test_a_completion_is_learned_to_the_byte(
    tokenizer: Tokenizer, prompt: str, completion: str
) -> None:
    found = encode_completion(tokenizer, prompt, completion)
    assert stretches(tokenizer, found) == [completion + "<|endoftext|>"]
    begin = tokenizer.encode(prompt) or [tokenizer.special_tokens["<|endoftext|>"]]
    assert found.ids[: len(begin)] == begin
    assert not any(found.supervised[: len(begin)])
    assert found.ids.count(tokenizer.special_tokens["<|endoftext|>"]) == 1 + (prompt == "")


def test_a_seam_is_not_merged_over(tokenizer: Tokenizer) -> None:
    apart = [*tokenizer.encode("cal"), *tokenizer.encode("ler")]
    assert tokenizer.encode("caller") != apart
    found = encode_completion(tokenizer, "cal", "ler")
    assert found.ids[:-1] == apart


def test_a_passage_is_learned_but_for_its_first_id(tokenizer: Tokenizer) -> None:
    found = encode_passage(tokenizer, "hi ok.")
    assert tokenizer.decode(found.ids) == "hi ok.<|endoftext|>"
    assert found.supervised == [False] + [True] * (len(found.ids) - 1)


def test_dropout_changes_ids_and_not_what_is_learned(
    tokenizer: Tokenizer, alpaca: ChatTemplate
) -> None:
    messages = turns("memory memory memory", "call.memory and memory")
    plain = encode_conversation(alpaca, tokenizer, messages)
    dropped = [
        encode_conversation(alpaca, tokenizer, messages, dropout=0.5, seed=s) for s in (1, 2, 1)
    ]
    assert dropped[0] == dropped[2]
    assert dropped[0].ids != dropped[1].ids
    for one in dropped:
        assert len(one.ids) > len(plain.ids)
        assert tokenizer.decode(one.ids) == tokenizer.decode(plain.ids)
        assert stretches(tokenizer, one) == stretches(tokenizer, plain)


def test_an_answer_without_an_end_gets_one(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    source += "{% if add_generation_prompt %}assistant: {% endif %}"
    bare = ChatTemplate(source, tokenizer.border_names())
    found = encode_conversation(bare, tokenizer, turns("hi", "ok."))
    assert stretches(tokenizer, found) == ["ok.<|endoftext|>"]
    with pytest.raises(TokenizerError, match="does not tell where an answer ends"):
        encode_conversation(bare, tokenizer, turns("hi", "ok.", "hi"))


END = "<|endoftext|>"
COUNTED = "{{ messages | length }}{% for m in messages %}[{{ m.role }}]{{ m.content BODY }}END"
COUNTED += "{% endfor %}"


def counted(tokenizer: Tokenizer, change: str = "", end: str = END) -> ChatTemplate:
    """Return a template whose first character tells how many messages there are."""
    source = COUNTED.replace("BODY", change).replace("END", end)
    return ChatTemplate(source, tokenizer.border_names())


@pytest.mark.parametrize("change", ["", "| trim"])
@pytest.mark.parametrize("answer", ["ok.", " ok.\n", "ok.\n\nhi  "])
def test_a_template_that_rewrites_the_past_is_found_out(
    tokenizer: Tokenizer, change: str, answer: str
) -> None:
    template = counted(tokenizer, change)
    messages = turns("hi", answer, "hi", answer)
    found = encode_conversation(template, tokenizer, messages)
    assert tokenizer.decode(found.ids) == template.render(messages)
    shown = answer.strip() if change else answer
    assert stretches(tokenizer, found) == [shown + END] * 2


def test_what_the_model_writes_is_never_guessed(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="cannot be told what the model writes"):
        encode_conversation(counted(tokenizer, "[:1]"), tokenizer, turns("hi", "ok.", "hi", "ok"))
    with pytest.raises(TokenizerError, match="does not tell where an answer ends"):
        encode_conversation(counted(tokenizer, end=""), tokenizer, turns("hi", "ok.", "hi", "ok"))


@settings(max_examples=40, deadline=None)
@given(said=st.lists(contents, min_size=2, max_size=6).filter(lambda x: len(x) % 2 == 0))
def test_what_a_template_marks_as_generated_is_learned(
    tokenizer: Tokenizer, said: list[str]
) -> None:
    source = "{{ messages | length }}{% for m in messages %}[{{ m.role }}]"
    source += "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|endoftext|>"
    source += "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    template = ChatTemplate(source, tokenizer.border_names())
    found = encode_conversation(template, tokenizer, turns(*said))
    assert tokenizer.decode(found.ids) == template.render(turns(*said))
    assert stretches(tokenizer, found) == [text + END for text in said[1::2]]


LLAMA = Path(__file__).parents[3] / "shared" / "data" / "tokenizers" / "llama3"


@pytest.mark.skipif(not LLAMA.exists(), reason="the tokenizers beside the project are not there")
def test_a_text_begins_as_in_generation() -> None:
    llama = Tokenizer.load(LLAMA)
    template = ChatTemplate(builtin_template("llama3"), llama.border_names())
    begin = llama.special_tokens["<|begin_of_text|>"]
    found = encode_conversation(template, llama, turns("hi", "ok"))
    assert found.ids.count(begin) == 1
    assert found.ids[0] == begin
    asked = llama.encode("hi", add_special_tokens=True)
    assert encode_completion(llama, "hi", "ok").ids[: len(asked)] == asked
    assert encode_passage(llama, "hi").ids[: len(asked)] == asked


def test_what_a_template_always_opens_behind_an_answer_is_not_learned() -> None:
    specials = ["<|endoftext|>", "<|open|>", "<|call|>", "<|stop|>"]
    tokenizer = train_bpe(["hi ok. look up"] * 3, 300, special_tokens=specials)
    source = "{% for m in messages %}<|open|>{{ m.role }}\n"
    source += "{% if m.call %}<|call|>{{ m.call }}<|stop|>"
    source += (
        "{% else %}{{ m.content }}<|endoftext|>{% endif %}{% endfor %}<|open|>assistant{{ '\n' }}"
    )
    template = ChatTemplate(source, tokenizer.border_names())
    messages = [*turns("hi", "ok."), {"role": "assistant", "call": "look up"}, *turns("hi", "ok.")]
    found = encode_conversation(template, tokenizer, messages)
    assert tokenizer.decode(found.ids) == template.render(messages)
    wanted = ["ok.<|endoftext|>", "<|call|>look up<|stop|>", "ok.<|endoftext|>"]
    assert stretches(tokenizer, found) == wanted
