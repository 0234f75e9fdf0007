"""`/reset` and the like: what is typed in a chat and is no question -> what to say to it."""

from collections.abc import Callable
from typing import NamedTuple

from mlxgpt.cli.chat.conversation import Conversation
from mlxgpt.errors import ConfigError, did_you_mean

_HELP = """\
/reset          forget all questions and answers
/undo           forget the last question and its answer
/system TEXT    say what the model should be; without TEXT, nothing of it
/help           this
/exit           leave, as Ctrl-D does
A line that ends with \\ goes on in the next one, and a text between \"\"\" may have
any number of lines. A question that begins with / is typed with //.
Ctrl-C stops an answer."""
_SHOWN = 60


class Reply(NamedTuple):
    """What a command leads to."""

    text: str
    leaves: bool = False


class Commands:
    """Acts on a conversation."""

    def __init__(self, conversation: Conversation, check: Callable[[], object]) -> None:
        """`check` raises for a conversation that cannot be put into the model's form."""
        self._conversation = conversation
        self._check = check
        self._known: dict[str, Callable[[str], Reply]] = {
            "/reset": self._reset,
            "/undo": self._undo,
            "/system": self._system,
            "/help": lambda _: Reply(_HELP),
            "/exit": lambda _: Reply("", leaves=True),
            "/quit": lambda _: Reply("", leaves=True),
        }

    def run(self, text: str) -> Reply:
        """Do what `text`, which begins with a slash, says. Raises `ConfigError` for what is no
        command, and what the check raises; the conversation is then as it was."""
        name, _, rest = text.strip().partition(" ")
        command = self._known.get(name)
        if command is None:
            hint = did_you_mean(name, self._known)
            raise ConfigError(f"{name} is no command{hint} (to ask it, type /{name})")
        rest = rest.strip()
        if rest and name != "/system":
            raise ConfigError(f"{name} stands alone; got {rest[:_SHOWN]!r} after it")
        return command(rest)

    def _reset(self, _: str) -> Reply:
        count = len(self._conversation.turns)
        self._conversation.reset()
        return Reply(f"forgot {count} turn{'' if count == 1 else 's'}")

    def _undo(self, _: str) -> Reply:
        turn = self._conversation.undo()
        return Reply("nothing to forget" if turn is None else f"forgot {_start(turn.question)}")

    def _system(self, text: str) -> Reply:
        before = self._conversation.system
        self._conversation.system = text or None
        try:
            self._check()
        except BaseException:
            self._conversation.system = before
            raise
        if text:
            return Reply("the system message is set; /reset would begin anew with it")
        return Reply("there was no system message" if before is None else "no system message now")


def _start(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "...")
