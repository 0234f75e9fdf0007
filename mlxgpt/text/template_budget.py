"""What a chat template may spend: operations, and the sizes of what it makes, reckoned beforehand.

A template is a program that came with the weights. An operation in Python's own code cannot be
stopped once it runs, so whatever makes much out of little (`*`, `**`, replace, join, a width in a
format) is priced before it is done, and what it made is paid for afterwards.
"""

import re
from typing import Any, final

from jinja2.exceptions import SecurityError

_WORK = 1_000_000
"""Operations that are free; each character that comes in is good for one more."""
_TEXT = 4_000_000
"""Characters that a value may have; for each that comes in there may be 16 more."""
_CHARACTERS_AN_OPERATION = 64
_CHARACTERS_AN_ITEM = 16
_MOST = 100_000
"""Largest width or count that a filter takes; jinja's own limit for `range`."""
_MOST_BITS = 1000
"""Largest number that `**` makes."""
_OPAQUE = 24
"""Characters that anything shows that is no text, number or container."""
_WIDE = re.compile(r"\d{4}|\*")
_ANY_NUMBER = frozenset(
    ("d", "default", "map", "reject", "rejectattr", "select", "selectattr", "tojson")
)

_AT_A_GLANCE = frozenset(("count", "d", "default", "first", "last", "length"))


class TooMuch(SecurityError):
    """The template asks for more than any prompt needs."""


@final
class Budget:
    """What one rendering may still spend, and how large the containers are that it has seen."""

    def __init__(self, num_characters: int) -> None:
        """So many characters come in, those of the template itself included."""
        self._left = _WORK + num_characters
        self._text = _TEXT + 16 * num_characters
        self._known: dict[int, tuple[int, object]] = {}

    def spend(self, num_characters: int = 0) -> None:
        """Take one operation that makes or shows so many characters off the budget."""
        self._left -= 1 + num_characters // _CHARACTERS_AN_OPERATION
        if self._left < 0:
            raise TooMuch("it runs on and on")

    def pay(self, value: Any) -> Any:
        """Return `value`, which was just made, or raise `TooMuch`."""
        self.spend(self.weigh(value))
        return value

    def walk(self, name: str, value: Any) -> None:
        """Pay for the way of the filter `name` through a value, whatever it makes of it."""
        if isinstance(value, str):
            self.spend(len(value))
        elif isinstance(value, list | tuple | dict | range) and name not in _AT_A_GLANCE:
            self.spend(_CHARACTERS_AN_ITEM * len(value))

    def allow(self, num_characters: int) -> None:
        """Raise `TooMuch` before a value of that size is made."""
        if num_characters > self._text:
            raise TooMuch(f"it makes a text of more than {self._text:,} characters")

    def weigh(self, *values: object) -> int:
        """Return a bound for the length of the values as text, which must be allowed."""
        size = sum(map(self._weight, values))
        self.allow(size)
        return size

    def binary(self, operator: str, left: Any, right: Any) -> None:
        """Check the operands of an operator before it is applied."""
        left_size, right_size = self.weigh(left), self.weigh(right)
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * abs(right) > _MOST_BITS:
                raise TooMuch(f"it makes a number of more than {_MOST_BITS:,} bits")
        elif operator == "*":
            for times, size in ((left, right_size), (right, left_size)):
                if isinstance(times, int):
                    self.allow(size * times)
        elif operator == "%" and isinstance(left, str):
            self._check_format(left, "%", right_size)

    def arguments(
        self, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Check what a filter, or the method of a text, is given before it is called.

        Returns `args`, in which the items for a join are a list: they may be had only once.
        """
        if name == "join" and isinstance(value, str) and args and not isinstance(args[0], str):
            args = (list(args[0]), *args[1:])
        given = [*args, *kwargs.values()]
        if name not in _ANY_NUMBER:
            _at_most(_MOST, *given)
        size, sizes = self.weigh(value), [self.weigh(item) for item in given]
        most = max(sizes, default=0)
        if name == "join":
            items = value if isinstance(value, list) else given[0] if given else ()
            between = most if isinstance(value, list) else size
            self.allow(size + most + between * len(items))
        elif name == "replace" and given:
            self.allow(size + str(value).count(str(given[0])) * most)
        elif name == "format" and isinstance(value, str):
            self._check_format(value, "{%", sum(sizes))
        elif name == "indent":
            widths = [item for item in given if isinstance(item, int)]
            lines = str(value).count("\n") + 1
            self.allow(size + lines * max(*widths, most, 4))
        elif name == "tojson":
            indent = kwargs.get("indent") or (args[1] if len(args) > 1 else 0)
            _at_most(8, indent)
            self.allow(size * (64 if indent else 1))
        elif name == "sum" and any(isinstance(item, list | tuple) for item in given):
            raise TooMuch("it adds up what are no numbers")
        return args

    def _check_format(self, form: str, marks: str, size: int) -> None:
        nested = "{" in marks and re.search(r"\{[^{}]*\{", form.replace("{{", ""))
        if nested or _WIDE.search(form):
            raise TooMuch("it formats with a width that is very large, or stands elsewhere")
        fields = sum(form.count(mark) for mark in marks)
        self.allow(len(form) + fields * (size + 1000))

    def _weight(self, value: object) -> int:
        if isinstance(value, str):
            return len(value)
        if isinstance(value, int):
            return 1 + value.bit_length() // 3
        if not isinstance(value, list | tuple | dict):
            return _OPAQUE
        known = self._known.get(id(value))
        if known is None:
            parts = list(value)
            if isinstance(value, dict):
                parts.extend(value.values())
            weight = 2 + sum(4 + self._weight(part) for part in parts)
            self._known[id(value)] = weight, value  # held, so that its id stays its own
            return weight
        return known[0]


def _at_most(most: int, *numbers: Any) -> None:
    for number in numbers:
        if isinstance(number, int) and abs(number) > most:
            raise TooMuch(f"it works with {number:,}, and {most:,} is the most here")
