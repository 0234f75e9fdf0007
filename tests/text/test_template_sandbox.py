"""Templates that want out of their sandbox, all the time or all the memory: one line each."""

import pytest

from mlxgpt.errors import TokenizerError
from mlxgpt.text.chat_template import ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]


def refused(source: str) -> str:
    with pytest.raises(TokenizerError) as caught:
        ChatTemplate(source, {"bos_token": "<s>"}).render(HELLO)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


INSIDES = [
    "''.__class__",
    "''.__class__.__mro__[1].__subclasses__()",
    "''['__class__']",
    "''|attr('__class__')",
    "cycler.__init__.__globals__.os.popen('id').read()",
    "joiner.__init__",
    "namespace.__init__",
    "range.__class__",
    "dict.__subclasses__()",
    "raise_exception.__globals__",
    "strftime_now.__code__",
    "self.__init__",
    "self._TemplateReference__context",
    "messages.__class__ is defined",
    "messages|map(attribute='__class__')|list",
    "messages|groupby('__class__')|list",
    "messages|sort(attribute='__class__')",
    "messages|selectattr('__class__')|list",
    "'{0.__class__}'.format(messages)",
    "'{0[0].__class__.__mro__}'.format(messages)",
    "'{x.__init__.__globals__}'.format(x=cycler)",
    "'{m.__class__}'.format_map({'m': messages})",
    "('{0.__cl' ~ 'ass__}').format(1)",
    "(messages|attr('append'))(1)",
    "messages.append(1)",
    "messages[0].update({})",
    "messages[0].pop('role')",
    "messages.sort()",
    "messages[0].setdefault('a')",
    "namespace(__class__=1)",
    "namespace({'_x': 1})",
    "'a'.encode()",
    "(1).to_bytes(9, 'big')",
    "'a'.translate({97: 'b'})",
    "'a'.maketrans('a', 'b')",
    "(1.5).hex()",
]


@pytest.mark.parametrize("expression", INSIDES)
def test_nothing_of_python_is_within_reach(expression: str) -> None:
    message = refused("{{ " + expression + " }}")
    assert "was stopped in line 1: " in message or "has no attribute" in message


@pytest.mark.parametrize(
    "tag", ["include 'x'", "extends 'x'", "import 'x' as y", "from 'x' import y"]
)
def test_there_are_no_other_templates(tag: str) -> None:
    assert "no loader" in refused("{% " + tag + " %}")


@pytest.mark.parametrize("tag", ["do messages.append(1)", "debug", "trans", "autoescape"])
def test_there_are_no_other_tags(tag: str) -> None:
    assert "in line 1" in refused("{% " + tag + " %}")


GROWING = [
    "ns.s ~ ns.s",
    "ns.s + ns.s",
    "[ns.s, ns.s]",
    "(ns.s, ns.s)",
    "{'a': ns.s, 'b': ns.s}",
    "ns.s * 3",
    "dict(a=ns.s, b=ns.s)",
    "ns.s|replace('a', 'aa')",
    "[ns.s, ns.s]|join",
    "ns.s|string|list|string",
    "'%s%s' % (ns.s, ns.s)",
    "'%s%s'|format(ns.s, ns.s)",
    "'{0}{0}'.format(ns.s)",
    "ns.s|string|indent(ns.s|string, true)",
    "[ns.s]|tojson|tojson",
    "'<' ~ (ns.s|e|e)",
    "[ns.s]|list + [ns.s]|list",
    "'a'.join([ns.s, ns.s])",
]


@pytest.mark.parametrize("step", GROWING)
def test_what_doubles_in_each_turn_is_stopped(step: str) -> None:
    source = (
        "{% set ns = namespace(s='aaaa\n') %}{% for i in range(99) %}{% for j in range(99) %}"
        "{% set ns.s = " + step + " %}{% endfor %}{% endfor %}{{ ns.s }}"
    )
    assert "characters" in refused(source) or "runs on" in refused(source)


AT_ONCE = [
    "'a' * 10**10",
    "10**10 * 'a'",
    "[1] * 10**10",
    "9**9**9**9",
    "(10**100)**9",
    "'a'|center(10**9)",
    "'a'|indent(10**9)",
    "('a\\n' * 2000000)|indent('b' * 2000000)",
    "range(10**9)",
    "[1]|batch(10**9, 1)|list",
    "'a'|batch(10**5, 'b' * 10**5)|join",
    "[1]|slice(10**9)|list",
    "1.5|round(10**9, 'ceil')",
    "('a' * 2000000)|replace('a', 'b' * 2000000)",
    "('a' * 2000000).replace('a', 'b' * 2000000)",
    "('a' * 2000000).replace('', 'b' * 2000000)",
    "('a' * 2000000).join('b' * 2000000)",
    "range(99999)|join('b' * 3999999)",
    "('b' * 3999999).join(range(99999)|map('string'))",
    "'%9999999999d' % 1",
    "'%*d' % (10**9, 1)",
    "'%.9999999999f' % 1",
    "'%9999999999d'|format(1)",
    "'{:>9999999999}'.format(1)",
    "'{:>{w}}'.format(1, w='9' * 13)",
    "('{:>99' ~ '99999999}').format(1)",
    "('{0}' * 999999).format('a' * 3999999)",
    "('%(a)s' * 799999) % {'a': 'b' * 3999999}",
    "[1]|tojson(indent=10**13)",
    "range(99999)|list|tojson(indent=99999)",
    "[[1]]|sum(start=[])",
    "'a'.ljust(10**9)",
    "'a'.zfill(10**9)",
    "lipsum(10**9)",
    "'a'|wordwrap(1)",
    "'a'|pprint",
    "'a\t'.expandtabs(10**9)",
    "('9' * 4300)|int ** 99",
]


@pytest.mark.parametrize("expression", AT_ONCE)
def test_what_makes_very_much_at_once_is_stopped(expression: str) -> None:
    message = refused("{{ " + expression + " }}")
    absent = "No filter named" in message or "is undefined" in message or "too big" in message
    assert "was stopped in line " in message or absent


LONG = "y" * 100_000
ENDLESS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "filtered loops": "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}"
    "{% endfor %}",
    "recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "two by two": "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(99) }}",
    "recursive loop": "{% for i in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "text": "{% for i in range(99999) %}" + LONG + "{% endfor %}",
    "text in a macro": "{% macro f() %}" + LONG + "{% endmacro %}{% for i in range(99999) %}"
    "{% set x = f() %}{% endfor %}",
    "text in a block": "{% block b %}" + LONG + "{% endblock %}{% for i in range(99999) %}"
    "{{ self.b() }}{% endfor %}",
    "values": "{% set x = 'a' * 3000000 %}{% for i in range(99999) %}{{ x }}{% endfor %}",
    "slices": "{% set x = range(90000)|list %}{% for i in x %}{% set y = x[1:] %}{% endfor %}",
    "looking for what is not there": "{% set x = range(99999) %}{% for i in x %}"
    "{% set y = x|select('gt', 99999)|list %}{% endfor %}",
    "maps": "{{ range(90000)|map('replace', 'a', 'b')|map('indent', 90000, true)|join }}",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_what_does_not_end_is_stopped(kind: str) -> None:
    message = refused(ENDLESS[kind])
    assert "runs on and on" in message or "nests too deep" in message or "characters" in message


def test_long_conversations_are_no_attack() -> None:
    source = (
        "{%- for m in messages %}{% set rest = messages[loop.index:] %}{% if rest|length >= 0 %}"
        "{{ '<' + m.role + '>' + (m.content | trim) + '\n' }}{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": f" {i} "} for i in range(1500)]
    text = ChatTemplate(source, {}).render(messages)
    assert text == "".join(f"<user>{i}\n" for i in range(1500))
    long = "a" * 10_000_000
    assert ChatTemplate(source, {}).render([{"role": "user", "content": long}]) == f"<user>{long}\n"
