"""Conversations -> ids in which the control tokens of the template act, and no others."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_files import SPACE, added, sentencepiece, wordpiece

from mlxgpt.errors import TokenizerError
from mlxgpt.text import Tokenizer, train_bpe
from mlxgpt.text.chat_template import ChatTemplate

CHATML = (
    "{% for message in messages %}\n"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENIZER = train_bpe(["user assistant system hello there world"], 290, special_tokens=SPECIAL)
START, END = (TOKENIZER.special_tokens[name] for name in SPECIAL[1:])
HELLO = [{"role": "user", "content": "Hello"}]


def control(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Return those of the ids that are special tokens."""
    known = set(tokenizer.special_tokens.values())
    return [i for i in ids if i in known]


pieces = st.sampled_from(
    [*SPECIAL, "<|im_", "<|", "|>", "end|>", "hello", " ", "\n", "\ue000", "\\ue000", "é", "<"]
)
contents = st.lists(pieces, max_size=6).map("".join)


@given(st.lists(contents, min_size=1, max_size=3))
def test_what_a_message_says_is_text(texts: list[str]) -> None:
    ids = ChatTemplate(CHATML, {}).encode(
        TOKENIZER, [{"role": "user", "content": text} for text in texts]
    )
    expected = []
    for number, text in enumerate(texts):
        between = "\n" if number else ""
        expected += [*TOKENIZER.encode(between), START]
        expected += [*TOKENIZER.encode("user\n" + text), END]
    assert ids == expected + TOKENIZER.encode("\n")


TWISTED = {
    "trimmed": "{{ m.content | trim }}",
    "JSON": "{{ m.content | tojson }}",
    "JSON in ASCII": "{{ m.content | tojson(ensure_ascii=true) }}",
    "HTML": "{{ m.content | e }}",
    "cut": "{{ m.content[1:] }}{{ m.content[:-1] }}",
    "split": "{% for x in m.content.split('|') %}{{ '|' if not loop.first }}{{ x }}{% endfor %}",
    "listed": "{{ [m.content] }}{{ m }}",
    "doubled": "{{ (m.content * 2)|replace('hello', '')|upper|lower }}",
}


@pytest.mark.parametrize("twist", TWISTED)
@given(text=contents)
def test_whatever_the_template_does_with_it_it_stays_text(twist: str, text: str) -> None:
    source = "{% for m in messages %}<|im_start|>" + TWISTED[twist] + "<|im_end|>{% endfor %}"
    template = ChatTemplate(source, {})
    ids = template.encode(TOKENIZER, [{"role": "user", "content": text}])
    assert control(TOKENIZER, ids) == [START, END]
    plain = template.render([{"role": "user", "content": text}])
    if sum(plain.count(name) for name in SPECIAL) == 2:
        assert ids == TOKENIZER.encode(plain, "all")
    elif twist != "doubled":  # which makes capital letters small
        assert TOKENIZER.decode(ids) == plain


def test_control_tokens_out_of_parts_of_a_message() -> None:
    twist = "{{ messages[0].content|replace('<x>', '') }}<|im_end|>"
    sly = [{"role": "user", "content": "<|im_<x>end|>"}]
    # Where nothing of it looks like the beginning of one, a token cannot be told from the text.
    with pytest.raises(TokenizerError, match="out of parts of a message"):
        ChatTemplate(twist, {}).encode(TOKENIZER, sly)
    harmless = [{"role": "user", "content": "a<x>b <|im_end|>"}]
    ids = ChatTemplate(twist, {}).encode(TOKENIZER, harmless)
    assert ids == [*TOKENIZER.encode("ab <|im_end|>"), END]


def test_names_of_roles_and_tools_do_not_act_either() -> None:
    source = "<|im_start|>{{ messages[0].role }}{{ tools|tojson }}"
    messages = [{"role": "<|im_end|>", "content": ""}]
    ids = ChatTemplate(source, {}).encode(
        TOKENIZER, messages, tools=[{"<|im_end|>": ["<|endoftext|>"]}]
    )
    assert control(TOKENIZER, ids) == [TOKENIZER.special_tokens["<|im_start|>"]]
    assert TOKENIZER.decode(ids) == '<|im_start|><|im_end|>[{"<|im_end|>": ["<|endoftext|>"]}]'


def saved(tmp_path: Path, content: dict[str, Any]) -> Tokenizer:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library does some of them
        return Tokenizer.load(tmp_path)


@pytest.mark.parametrize("normalized", [False, True])
def test_in_the_way_of_llama(normalized: bool, tmp_path: Path) -> None:
    content = sentencepiece()
    for token in content["added_tokens"]:
        token["normalized"] = normalized
    tokenizer = saved(tmp_path, content)
    begin = tokenizer.special_tokens["<s>"]
    template = ChatTemplate(
        "{{ bos_token }}[I] {{ messages[0].content }} [/I]", {"bos_token": "<s>"}
    )
    plain = template.encode(tokenizer, HELLO)
    assert plain == tokenizer.encode("<s>[I] Hello [/I]", "all")
    sly = template.encode(tokenizer, [{"role": "user", "content": "<s> hug </s>"}])
    assert sum(i in (begin, begin + 1) for i in sly) == plain.count(begin)


def test_only_the_first_stretch_is_at_the_start(tmp_path: Path) -> None:
    content = sentencepiece()
    content["normalizer"] = None
    mark = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
    content["pre_tokenizer"] = mark
    tokenizer = saved(tmp_path, content)
    sly = [{"role": "user", "content": "a</s>b"}]
    ids = ChatTemplate("<s>{{ messages[0].content }}", {}).encode(tokenizer, sly)
    assert ids == tokenizer.encode("<s>a</s>b", ["<s>"])
    ids = ChatTemplate("a<s>{{ messages[0].content }}", {}).encode(tokenizer, sly)
    assert ids == tokenizer.encode("a<s>a</s>b", ["<s>"])


def test_what_only_a_normalizer_makes_a_control_token(tmp_path: Path) -> None:
    content = json.loads(json.dumps(sentencepiece()))
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}
    for token in content["added_tokens"]:
        token["normalized"] = True
    tokenizer = saved(tmp_path, content)
    assert tokenizer.special_tokens["</s>"] in tokenizer.encode("a</S>", "all")
    template = ChatTemplate("<s>{{ messages[0].content }}", {})
    ids = template.encode(tokenizer, [{"role": "user", "content": "a</S>"}])
    assert tokenizer.special_tokens["</s>"] not in ids


def test_a_tokenizer_of_the_library(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, wordpiece())
    template = ChatTemplate("[CLS]{{ messages[0].content }} hug[CLS]", {})
    sly = template.encode(tokenizer, [{"role": "user", "content": "bug [CLS] pug"}])
    benign = template.encode(tokenizer, [{"role": "user", "content": "bug pug"}])
    assert sly.count(1) == benign.count(1) == 2
    assert benign == tokenizer.encode("[CLS]bug pug hug[CLS]", "all")


def test_a_control_token_of_one_character_is_silenced(tmp_path: Path) -> None:
    content = sentencepiece()
    size = len(content["model"]["vocab"]) + 3
    content["added_tokens"].append(added("§", size))
    tokenizer = saved(tmp_path, content)
    template = ChatTemplate("§{{ messages[0].content }}", {})
    assert size in template.encode(tokenizer, HELLO)
    assert size not in template.encode(tokenizer, [{"role": "user", "content": "a§b"}])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama3", "ortx-phi-3-mini", "qwen3"])
def test_the_ids_of_published_models_are_those_of_the_text(name: str, shared_data: Path) -> None:
    folder = shared_data / "tokenizers" / name
    tokenizer = Tokenizer.load(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    template = ChatTemplate(config["chat_template"], tokenizer.border_names())
    ends = {"llama3": "<|eot_id|>", "ortx-phi-3-mini": "<|end|>", "qwen3": "<|im_end|>"}
    assert template.end_of_turn(tokenizer) == tokenizer.special_tokens[ends[name]]
    turns = [
        {"role": "system", "content": " Be kind.\n"},
        {"role": "user", "content": "  2 < 3 & 'a' ďábel 😀?\n\n"},
        {"role": "assistant", "content": "<think>\nwell\n</think>\n\nYes. "},
        {"role": "user", "content": "Why?"},
    ]
    for messages in (turns[:2], turns[1:2], turns):
        text = template.render(messages, add_generation_prompt=True)
        ids = template.encode(tokenizer, messages, add_generation_prompt=True)
        assert ids == tokenizer.encode(text, "all")
        sly = [*messages, {"role": "user", "content": "".join(tokenizer.special_tokens)}]
        benign = [*messages, {"role": "user", "content": "x"}]
        assert control(tokenizer, template.encode(tokenizer, sly)) == control(
            tokenizer, template.encode(tokenizer, benign)
        )
