"""The built-in chat templates: what they write, what they need, and those of models beside them."""

from pathlib import Path
from typing import Any

import pytest
from test_supervised import stretches, turns

from mlxgpt.checkpoint.hf.chat_template import read_chat_template
from mlxgpt.errors import ConfigError, TokenizerError
from mlxgpt.text import Tokenizer, train_bpe
from mlxgpt.text.chat_template import ChatTemplate
from mlxgpt.text.supervised import encode_conversation
from mlxgpt.text.templates import BUILTIN_NAMES, builtin_template, missing_tokens

SYSTEM = [{"role": "system", "content": "Be brief."}]
CHAT = turns("a?", "b.", "c?", "d.")
ALPACA = "Below is an instruction that describes a task. Write a response that appropriately "
ALPACA += "completes the request.\n\n"
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}

WRITTEN = {
    "alpaca": ALPACA + "### Instruction:\na?\n\n### Response:\nb.</s>\n\n### Instruction:\nc?\n\n"
    "### Response:\nd.</s>",
    "chatml": "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\nb.<|im_end|>\n"
    "<|im_start|>user\nc?<|im_end|>\n<|im_start|>assistant\nd.<|im_end|>\n",
    "gemma": "<s><start_of_turn>user\na?<end_of_turn>\n<start_of_turn>model\nb.<end_of_turn>\n"
    "<start_of_turn>user\nc?<end_of_turn>\n<start_of_turn>model\nd.<end_of_turn>\n",
    "llama3": "<s><|start_header_id|>user<|end_header_id|>\n\na?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nb.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nc?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nd.<|eot_id|>",
    "mistral": "<s>[INST] a? [/INST] b.</s>[INST] c? [/INST] d.</s>",
    "zephyr": "<|user|>\na?</s>\n<|assistant|>\nb.</s>\n<|user|>\nc?</s>\n<|assistant|>\nd.</s>\n",
}
OPENED = {
    "alpaca": "\n\n### Response:\n",
    "chatml": "<|im_start|>assistant\n",
    "gemma": "<start_of_turn>model\n",
    "llama3": "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "",
    "zephyr": "<|assistant|>\n",
}
CONTROL = {
    "alpaca": [],
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "gemma": ["<start_of_turn>", "<end_of_turn>"],
    "llama3": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "mistral": [],
    "zephyr": [],
}


def template(name: str) -> ChatTemplate:
    return ChatTemplate(builtin_template(name), NAMES, name=name)


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_the_form_is_the_known_one(name: str) -> None:
    assert template(name).render(CHAT) == WRITTEN[name]
    asked = template(name).render(CHAT[:1])
    assert template(name).render(CHAT[:1], add_generation_prompt=True) == asked + OPENED[name]
    told = template(name).render([*SYSTEM, *CHAT])
    assert "Be brief." in told
    assert told.endswith(WRITTEN[name][-20:])


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_tools_and_their_results_stand_in_it(name: str) -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
    call = {"function": {"name": "look_up", "arguments": {"what": "x"}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "a?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "found it"},
        {"role": "assistant", "content": "b."},
    ]
    text = template(name).render(messages, tools=tools)
    for part in ("look_up", '"what"', "found it", "b."):
        assert part in text


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_an_unknown_role_is_refused(name: str) -> None:
    with pytest.raises(TokenizerError, match="owner"):
        template(name).render([{"role": "owner", "content": "x"}])


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_answers_are_learned_and_lacking_tokens_are_named(name: str) -> None:
    control = CONTROL[name]
    specials = ["</s>", "<s>", *control]
    tokenizer = train_bpe(["a? b. c? d. one two"] * 3, 400, special_tokens=specials)
    chosen = ChatTemplate(builtin_template(name), NAMES, name=name)
    found = encode_conversation(chosen, tokenizer, CHAT)
    assert tokenizer.decode(found.ids) == WRITTEN[name]
    end = control[-1] if control else "</s>"
    said = [" b.", " d."] if name == "mistral" else ["b.", "d."]
    assert stretches(tokenizer, found) == [text + end for text in said]
    bare = train_bpe(["a? b."], 300)
    assert missing_tokens(name, bare) == missing_tokens(builtin_template(name), bare)
    assert set(control) <= set(missing_tokens(name, bare))


def test_another_name_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="chatml"):
        builtin_template("chatlm")


FOLDER = Path(__file__).parents[3] / "shared" / "data" / "tokenizers"


@pytest.mark.skipif(not FOLDER.exists(), reason="the tokenizers beside the project are not there")
@pytest.mark.parametrize("model", ["llama3", "qwen3", "ortx-phi-3-mini"])
def test_real_templates(model: str) -> None:
    source = read_chat_template(FOLDER / model)
    assert source is not None
    tokenizer = Tokenizer.load(FOLDER / model)
    real = ChatTemplate(source, tokenizer.border_names(), name=model)
    found = encode_conversation(real, tokenizer, CHAT)
    assert tokenizer.decode(found.ids) == tokenizer.decode(real.encode(tokenizer, CHAT))
    end = {"llama3": "<|eot_id|>", "qwen3": "<|im_end|>", "ortx-phi-3-mini": "<|end|>"}[model]
    learned = stretches(tokenizer, found)
    assert [text[-len("b." + end) :] for text in learned] == [f"b.{end}", f"d.{end}"]
    assert all(text.strip() in (f"b.{end}", f"d.{end}") or "think" in text for text in learned)
    mine = {"llama3": "llama3", "qwen3": "chatml"}.get(model)
    if mine is not None:
        built_in = ChatTemplate(builtin_template(mine), tokenizer.border_names())
        for messages in (CHAT[:1], CHAT[:3], [*SYSTEM, *CHAT[:3]]):
            assert built_in.render(messages, add_generation_prompt=True) == real.render(
                messages, add_generation_prompt=True
            )
