"""A jinja template from outside -> text, in an environment in which it can do nothing else.

jinja's sandbox keeps a template from Python's insides. What is added here keeps it from running
forever and from filling the memory: each operation that makes a value, each turn of a loop and each
piece of text is paid from the `Budget` of the rendering.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Environment, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from mlxgpt.text.template_budget import Budget

BUDGET = "(budget)"
"""Variable of a rendering that holds its `Budget`; a template has no way to write this name."""
GENERATION = "(generation)"
"""Variable with the two texts to put around what a template says that the model writes, if any."""

_TEXT_METHODS = """
capitalize casefold count endswith find format index isalnum isalpha isascii isdecimal isdigit
isidentifier islower isnumeric isprintable isspace istitle isupper join lower lstrip partition
removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith
strip swapcase title upper
"""
_METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(_TEXT_METHODS.split()),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    int: frozenset(),
    float: frozenset(),
}
"""All that a template may call of Python's own types."""
_LEFT_OUT = ("pprint", "random", "urlize", "wordwrap", "xmlattr")
"""Filters that no prompt needs, and whose size or result cannot be foreseen."""


class Refusal(TemplateError):
    """What the template itself has to say against the messages."""


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment with the settings, filters and functions that chat templates expect."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # what is constant would be computed by the compiler, unpaid
            finalize=_paid,
            extensions=[_Generation, loopcontrols],
        )
        self.filters["tojson"] = _tojson
        for name in _LEFT_OUT:
            del self.filters[name]
        for name, function in list(self.filters.items()):
            self.filters[f"({name})"] = function
            self.filters[name] = _guarded(name)
        self.filters |= {"(paid)": _paid, "(toll)": _toll, "(tested)": _tested, "(joined)": _joined}
        self.filters["(edge)"] = _edge
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": _dict,
            "namespace": _Namespace,
        }

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        kind = next((kind for kind in _METHODS if isinstance(obj, kind)), None)
        return kind is None or not callable(value) or attr in _METHODS[kind]

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"it may not look at '{attribute}' of a {type(obj).__name__}")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _budget(context)
        budget.binary(operator, left, right)
        return budget.pay(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(__context)
        method = getattr(__obj, "__wrapped__", __obj)  # jinja wraps str.format
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(owner, str):
            args = budget.arguments(name, owner, args, kwargs)
        return budget.pay(super().call(__context, __obj, *args, **kwargs))

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Priced(self).visit(source), *args, **kwargs)


class _Priced(NodeTransformer):
    """Rewrites a template so that what is no call, filter or operator is paid for as well."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        node = super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block):
            size = sum(len(text.data) for text in node.find_all(nodes.TemplateData))
            toll = self._filter(nodes.Const(size), "(toll)", node)
            node.body.insert(0, nodes.Output([toll]).set_lineno(node.lineno))
            if isinstance(node, nodes.For) and node.test is not None:
                node.test = self._filter(node.test, "(tested)", node)
        elif isinstance(node, nodes.Concat):
            return self._filter(nodes.List(node.nodes), "(joined)", node)
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return self._filter(node, "(paid)", node)
        elif isinstance(node, nodes.List | nodes.Tuple | nodes.Dict):
            constant = all(isinstance(item, nodes.Const) for item in node.items)
            if not constant and getattr(node, "ctx", "load") == "load":
                return self._filter(node, "(paid)", node)
        return node

    def _filter(self, node: Any, name: str, place: nodes.Node) -> nodes.Filter:
        made = nodes.Filter(node, name, [], [], None, None)
        made.set_lineno(place.lineno)
        made.set_environment(self._environment)
        return made


class _Generation(Extension):
    """`{% generation %}` marks what the model writes; the text is its body.

    Around that stands what `GENERATION` holds, if the rendering has it.
    """

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        around = [nodes.Output([self._edge(side)]).set_lineno(line) for side in (0, 1)]
        return nodes.Scope([around[0], *body, around[1]]).set_lineno(line)

    def _edge(self, side: int) -> nodes.Filter:
        edge = nodes.Filter(nodes.Const(side), "(edge)", [], [], None, None)
        edge.set_environment(self.environment)
        return edge


class _Namespace(Namespace):
    def __init__(*args: Any, **kwargs: Any) -> None:  # "self" may be among the names
        self, *given = args
        Namespace.__init__(self)
        for name, value in dict(*given, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if str(name).startswith("_"):
            raise SecurityError(f"a namespace may not hold '{name}'")
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<namespace>"  # what is in it may have grown since it was weighed


def _budget(context: Context) -> Budget:
    budget = context.resolve(BUDGET)
    assert isinstance(budget, Budget)
    return budget


def _guarded(name: str) -> Callable[..., Any]:
    """Return the filter `name` with its arguments checked and its result paid for."""

    @pass_context
    def run(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(context)
        budget.walk(name, value)
        if name == "join" and not isinstance(value, str):
            value = list(value)
        args = budget.arguments(name, value, args, kwargs)
        made = context.environment.call_filter(f"({name})", value, args, kwargs, context=context)
        return budget.pay(made)

    return run


@pass_context
def _paid(context: Context, value: Any) -> Any:
    return _budget(context).pay(value)


@pass_context
def _toll(context: Context, num_characters: int) -> str:
    _budget(context).spend(num_characters)
    return ""


@pass_context
def _tested(context: Context, value: Any) -> Any:
    _budget(context).spend()
    return value


@pass_context
def _joined(context: Context, parts: list[Any]) -> str:
    budget = _budget(context)
    budget.weigh(*parts)
    return budget.pay("".join(map(str, parts)))


@pass_context
def _edge(context: Context, side: int) -> str:
    around = context.resolve(GENERATION)
    return around[side] if isinstance(around, tuple) else ""


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON without jinja's escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise Refusal(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)
