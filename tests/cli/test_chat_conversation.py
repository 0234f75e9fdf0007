"""The parts of a chat that need no model: its memory, its lines, its commands."""

from collections.abc import Sequence

import pytest

from mlxgpt.cli.chat.commands import Commands
from mlxgpt.cli.chat.conversation import Conversation, Turn
from mlxgpt.cli.chat.entries import Entries, Entry
from mlxgpt.errors import ConfigError, TokenizerError


def length(messages: Sequence[dict[str, str]]) -> list[int]:
    """A template by which every character is a token."""
    return [0] * sum(len(message["content"]) for message in messages)


def contents(conversation: Conversation, question: str) -> list[str]:
    return [message["content"] for message in conversation.messages(question)]


def talk(*turns: str, system: str | None = None) -> Conversation:
    conversation = Conversation(system)
    for turn in turns:
        conversation.record(*turn.split())
    return conversation


def test_messages_are_all_turns_and_the_question() -> None:
    conversation = talk("a b", "c d", system="s")
    assert conversation.messages("e") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]
    assert conversation.undo() == Turn("c", "d")
    assert contents(conversation, "e") == ["s", "a", "b", "e"]
    conversation.reset()
    assert contents(conversation, "e") == ["s", "e"]
    assert conversation.undo() is None


def test_the_oldest_turns_are_left_out_whole_and_stay_out() -> None:
    conversation = talk("a b", "c d", "e f", system="s")
    assert len(conversation.ids("g", length, 8)) == 8
    assert conversation.left_out == 0
    assert len(conversation.ids("g", length, 7)) == 6
    assert contents(conversation, "g") == ["s", "c", "d", "e", "f", "g"]
    assert len(conversation.ids("g", length, 100)) == 6
    assert len(conversation.ids("long question", length, 5)) == 14  # nothing is left to leave out
    assert contents(conversation, "g") == ["s", "g"]
    conversation.undo()
    conversation.record("h", "i")
    assert contents(conversation, "g") == ["s", "h", "i", "g"]
    conversation.reset()
    assert conversation.left_out == 0
    assert len(conversation.ids("g" * 50, length, None)) == 51


def test_a_refused_question_leaves_nothing_out() -> None:
    conversation = talk("a b", "c d")
    calls = 0

    def failing(messages: Sequence[dict[str, str]]) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise TokenizerError("no")
        return [0] * 100

    with pytest.raises(TokenizerError):
        conversation.ids("e", failing, 10)
    assert conversation.left_out == 0


def entries(*lines: str) -> list[Entry]:
    left = list(lines)
    shown = []

    def read(prompt: str) -> str:
        shown.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    reader = Entries(read)
    found = []
    while (entry := reader.next()) is not None:
        found.append(entry)
    assert set(shown) <= {"> ", ". "}
    return found


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["a", "", "  ", "b c "], ["a", "b c "]),
        (["a\\", "b\\", "c", "d"], ["a\nb\nc", "d"]),
        (["a\\\\", "b"], ["a\\\\", "b"]),
        (["a\\"], ["a"]),
        (["\\", "\\"], []),
        (['"""', "a", "", ' b"""', "c"], ["a\n\n b", "c"]),
        (['"""a"""', '  """b', 'c""" '], ["a", "b\nc"]),
        (['"""', "a\\", '"""'], ["a\\"]),
        (['"""', '"""', "a"], ["a"]),
        (['"""a', "b"], ["a\nb"]),
        (['say """hi"""'], ['say """hi"""']),
        ([], []),
    ],
)
def test_lines_become_entries(lines: list[str], texts: list[str]) -> None:
    assert [entry.text for entry in entries(*lines)] == texts


def test_what_is_between_quotes_is_marked() -> None:
    assert entries('"""/help"""', "/help") == [Entry("/help", True), Entry("/help", False)]


def test_commands() -> None:
    conversation = talk("a b", "c d")
    refused = False

    def check() -> None:
        if refused:
            raise TokenizerError("no system messages")

    commands = Commands(conversation, check)
    assert commands.run("/undo").text == "forgot 'c'"
    commands.run("/system be\nkind ")
    assert contents(conversation, "x") == ["be\nkind", "a", "b", "x"]
    assert commands.run("/reset").text == "forgot 1 turn"
    assert commands.run("/undo ").text == "nothing to forget"
    refused = True
    with pytest.raises(TokenizerError):
        commands.run("/system other")
    assert conversation.system == "be\nkind"
    refused = False
    assert commands.run("/system").text == "no system message now"
    assert commands.run("/system").text == "there was no system message"
    assert contents(conversation, "x") == ["x"]
    for name in ("/reset", "/undo", "/system", "/help", "/exit", '"""', "\\"):
        assert name in commands.run("/help").text
    assert commands.run("/exit").leaves
    assert commands.run("/quit").leaves
    assert not commands.run("/help").leaves
    for text, words in (
        ("/rest", "did you mean '/reset'"), ("/", "is no command"), ("/etc/passwd", "//etc/passwd"),
        ("/exit now", "stands alone"), ("/RESET", "is no command"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as told:
            commands.run(text)
        assert words in str(told.value)
