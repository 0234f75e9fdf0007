"""Chat templates -> text: what transformers renders, and one line for what does not work."""

import json
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mlxgpt.errors import TokenizerError
from mlxgpt.text.chat_template import ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'Says <how> it\'s in a town & "when".',
        "parameters": {"type": "object", "properties": {"ort": {"type": "string"}}},
    },
}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one turn": HELLO,
    "system": [{"role": "system", "content": "Be brief."}, *HELLO],
    "turns": [
        {"role": "system", "content": " Be kind.\n"},
        {"role": "user", "content": "  2 < 3 & 'a' ďábel 😀?\n\n"},
        {"role": "assistant", "content": "<think>\nwell\n</think>\n\nYes. "},
        {"role": "user", "content": "Why?"},
    ],
    "tools": [
        {"role": "user", "content": "Is it warm?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"ort": "Ústí"}}}],
        },
        {"role": "tool", "content": '{"warm": true}'},
    ],
}
OF_EACH_KIND = {
    "loops": """{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index }}
        {{ loop.length }}{{ m.role }}{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}""",
    "namespace": """{% set ns = namespace(n=0, s='') %}{% for m in messages if m.content %}
        {% set ns.n = ns.n + 1 %}{% set ns.s = ns.s ~ m.content[:3] ~ ns.n %}
        {% endfor %}{{ ns.s }}""",
    "macro": """{% macro f(x, y=2) %}
          {{ x|trim }}{{ y }}{{ caller() if caller }}
        {% endmacro %}{{ f(messages[0].content) }}
        {% call f('a') %}b{% endcall %}{% set z %} {{ f('c', y=[1]) }}{% endset %}{{ z|length }}""",
    "json": """{{ messages|tojson }}{{ tools|tojson(indent=2) if tools }}{{ [1.5, none]|tojson }}
        {{ messages[0]|tojson(ensure_ascii=true, sort_keys=True, separators=(',', ': ')) }}""",
    "white space": """  {% if true %}
            a
          {% endif %}
        \t{%- if 1 %} b {%+ endif %}
          {# c #}
        """,
    "generation": """{% for m in messages %}
        {% generation %}{{ m.content }}{% endgeneration %}

        {% endfor %}""",
    "filters": """{{ messages|map(attribute='role')|join(', ') }}
        {{ messages|selectattr('role', 'equalto', 'user')|list|length }}
        {{ 'yes' if messages|rejectattr('role', 'eq', 'user') }}{{ [3, 1, 2]|sort|last }}
        {{ 'a b'|title|replace('A', 'xx')|upper }}{{ messages[-1].content|indent(3) }}
        {{ none_such|d('there') }}{{ messages|groupby('role')|length }}""",
    "methods": """{{ messages[0].content.strip().split('l')[-1] }}{{ messages[0].get('x', 'no') }}
        {% for k, v in messages[0].items() %}{{ k }}={{ v }}{% endfor %}
        {{ '{}-{:>4}'.format(1, 'a') }}{{ '%s %03d' % ('a', 7) }}{{ ', '.join(['a', 'b']) }}
        {{ dict(a=1)['a'] }}{{ messages[::-1][0].role }}""",
    "tests": """{{ messages is iterable and messages is not mapping }}{{ x is defined }}
        {{ messages[0].content is string }}{{ documents is none }}{{ 'a' in 'cat' }}
        {{ 7 // 2 ** 2 % 3 * 2 }}{{ -1 }}""",
    "special": """{{ bos_token }}{{ eos_token }}{{ unk_token }}|
        {{ 'ab' * 3 }}{{ [1] * 2 + [3] }}{{ 2 ** 10 }}""",
}
NAMES = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}


def theirs(
    source: str, messages: list[dict[str, Any]], names: dict[str, str], **settings: Any
) -> str:
    """Let transformers render it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        utils = pytest.importorskip("transformers.utils.chat_template_utils")
    rendered, _ = utils.render_jinja_template([messages], chat_template=source, **settings, **names)
    return rendered[0]


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_it_renders_what_transformers_renders(kind: str, conversation: str) -> None:
    source, messages = OF_EACH_KIND[kind], CONVERSATIONS[conversation]
    tools = [TOOL] if conversation == "tools" else None
    settings = {"tools": tools, "add_generation_prompt": True}
    ours = ChatTemplate(source, NAMES).render(messages, tools=tools, add_generation_prompt=True)
    assert ours == theirs(source, messages, NAMES, **settings)


@pytest.mark.parametrize("name", ["llama3", "ortx-phi-3-mini", "qwen3"])
def test_the_templates_of_published_models_render_alike(name: str, shared_data: Path) -> None:
    folder = shared_data / "tokenizers" / name
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    source = config["chat_template"]
    names = {k: v for k, v in config.items() if k in ("bos_token", "eos_token") and v}
    template = ChatTemplate(source, names)
    for messages in CONVERSATIONS.values():
        for tools in (None, [TOOL]):
            for begin in (False, True):
                settings: dict[str, Any] = {"tools": tools, "add_generation_prompt": begin}
                ours = template.render(messages, **settings)
                assert ours == theirs(source, messages, names, **settings)


def test_todays_date_and_absent_entries() -> None:
    template = ChatTemplate("{{ strftime_now('%Y') }}{{ messages[0].name is defined }}", {})
    message = {"role": "user", "name": None}
    assert template.render([message]) == f"{datetime.now().year}False"


def refused(source: str, messages: Any = HELLO, **settings: Any) -> str:
    with pytest.raises(TokenizerError) as caught:
        ChatTemplate(source, {}, name="the template of x").render(messages, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_what_the_template_says_is_shown() -> None:
    source = "\n{{ raise_exception('roles must\nalternate') }}"
    assert refused(source) == "the template of x does not take these messages: roles must alternate"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("a\n{{ messages", "in line 2: unexpected end of template"),
        ("{% if %}", "in line 1: Expected an expression"),
        ("{{ 'a'|nosuch }}", "No filter named 'nosuch'"),
        ("\n\n{{ a.b.c }}", "in line 3: 'a' is undefined"),
        ("{{ messages[0].content.x.y }}", "in line 1: 'str object' has no attribute 'x'"),
        ("{{ nosuch() }}", "'nosuch' is undefined"),
        ("{{ messages + 1 }}", "TypeError: can only concatenate list"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% include 'x' %}", "no loader"),
        ("{{ x|tojson }}", "TypeError: Object of type Undefined is not JSON serializable"),
        ("{{ " + "(" * 5000, "nests too deep"),
        ("{% for i in [1] %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
        ("x" * (2 << 20), "has 2,097,152 characters; 1,048,576 are allowed"),
    ],
)
def test_what_is_wrong_with_a_template_is_said_in_one_line(source: str, reason: str) -> None:
    message = refused(source)
    assert message.startswith("the template of x ")
    assert reason in message


def test_messages_are_objects_of_plain_values() -> None:
    source = "{{ messages }}"
    for odd in (["Hello"], [{"content": "a"}], [{"role": 1}]):
        assert "messages[0] must be an object with a 'role'" in refused(source, odd)
    for odd in (object(), {"a": [object()]}, b"a"):
        message = refused(source, [*HELLO, {"role": "user", "content": odd}])
        assert "messages[1].content" in message
    assert "no text: 1" in refused(source, [{"role": "user", "content": {1: 2}}])
    assert "tools[0].f" in refused(source, HELLO, tools=[{"f": len}])
    half = ChatTemplate("{{ messages[0].content }}", {}).render(
        [{"role": "a", "content": "\ud83d"}]
    )
    assert half == "\ufffd"


def test_a_file_with_a_template(tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_bytes(b"\xef\xbb\xbf{{ bos_token }}\xc3\xa9")
    assert ChatTemplate.read(file, {"bos_token": "<s>"}).render(HELLO) == "<s>é"
    file.write_bytes(b"ab\xff")
    with pytest.raises(TokenizerError, match=r"chat\.jinja is not UTF-8 \(at byte 2\)"):
        ChatTemplate.read(file, {})
    with pytest.raises(TokenizerError, match="none: No such file"):
        ChatTemplate.read(tmp_path / "none", {})
