"""Messages in which the literals of control tokens are marked -> the text that a template writes.

All texts of one conversation, and of its beginnings, are made of the same marked messages, so that
they can be compared place by place. Plain sentinels tell where a message ended up in the text.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

from mlxgpt.errors import TokenizerError
from mlxgpt.text.marked_text import Marking


class Given(NamedTuple):
    """What a template is given: plain JSON."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None


Render = Callable[[Given, bool, tuple[str, str] | None], str]
"""(what is given, add_generation_prompt, what to put around generated text) -> text."""


@final
class MarkedMessages:
    """A conversation, its marks, and what a template makes of it and of its beginnings."""

    def __init__(self, given: Given, marking: Marking, render: Render) -> None:
        self.plain = given
        self.marking = marking
        self._render = render
        self._marked = Given(*marking.beginnings(list(given)))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages with their marks, as they are in the texts."""
        return self._marked.messages

    def text(self, add_generation_prompt: bool = False) -> str:
        """Return the marked text of the whole conversation.

        From then on all texts are made with the marks of this one. Raises what the template says,
        and `TokenizerError` if a control token would be put together out of parts of messages.
        """
        text = self._render(self._marked, add_generation_prompt, None)
        if self.marking.is_in(text):
            literals = Given(*self.marking.literals(list(self.plain)))
            other = self._render(literals, add_generation_prompt, None)
            chosen = self.marking.choose(text, other)
            if chosen is not text:
                text, self._marked = chosen, literals
        return self.marking.unescaped(text)

    def beginning(self, count: int, add_generation_prompt: bool) -> str | None:
        """Return the text of the first `count` messages; None if the template takes them not."""
        given = self._marked._replace(messages=self.messages[:count])
        try:
            text = self._render(given, add_generation_prompt, None)
        except TokenizerError:
            return None
        return self.marking.unescaped(text)

    def with_messages(self, messages: Sequence[dict[str, Any]]) -> str | None:
        """Return the text of other messages in the place of these; None as in `beginning`."""
        try:
            text = self._render(self._marked._replace(messages=list(messages)), False, None)
        except TokenizerError:
            return None
        return self.marking.unescaped(text)

    def with_edges(self, around: tuple[str, str]) -> str:
        """Return the text with `around` at the edges of what the template says is generated."""
        return self.marking.unescaped(self._render(self._marked, False, around))
