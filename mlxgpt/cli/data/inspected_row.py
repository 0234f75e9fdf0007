"""A row of a file -> its form, its ids, what is learned of them, and what was cut off."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxgpt.cli.data.opened_rows import OpenedRows
from mlxgpt.cli.data.supervised_text import Stretch, stretches
from mlxgpt.data.sft.encoder import Unusable
from mlxgpt.data.sft.example import Example
from mlxgpt.data.sft.forms import Completion, Conversation, Form, Passage, ignored_fields, recognise
from mlxgpt.data.sft.row_files import RawRow, read_rows
from mlxgpt.errors import DataError, MLXGPTError


@dataclass(frozen=True)
class InspectedRow:
    """One row, encoded as for training."""

    opened: OpenedRows
    number: int
    """Which row of the file, from 1."""
    raw: RawRow
    form: Form
    result: Example | Unusable
    whole: int
    """Its tokens before anything was cut off; 0 for a row that has none."""

    @property
    def what(self) -> str:
        """Its form, in words."""
        match self.form:
            case Conversation(messages, tools):
                more = f" and {_number(len(tools), 'tool')}" if tools else ""
                return f"a conversation of {_number(len(messages), 'message')}{more}"
            case Completion():
                return "a prompt with its completion"
            case _:
                return "a text"

    @property
    def is_text(self) -> bool:
        """Whether it is a text, which no template is put around."""
        return isinstance(self.form, Passage)

    @property
    def ignored(self) -> list[str]:
        """Fields of the row that have no effect."""
        return ignored_fields(self.raw)

    @property
    def cut(self) -> int:
        """How many tokens were cut off."""
        return self.whole - self.result.length if isinstance(self.result, Example) else 0

    def stretches(self) -> list[Stretch]:
        """Return its text; nothing if it is unusable."""
        if isinstance(self.result, Unusable):
            return []
        ids, supervised = self.result.ids.tolist(), self.result.supervised.tolist()
        return stretches(self.opened.tokenizer, ids, supervised)

    def facts(self, *, with_ids: bool) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        facts: dict[str, Any] = {
            "file": str(self.raw.file),
            "line": self.raw.line,
            "row": self.number,
            "form": type(self.form).__name__.lower(),
            "ignored_fields": self.ignored,
            "template": self.opened.chosen.name,
            "notes": list(self.opened.chosen.notes),
            "max_length": self.opened.max_length,
            "usable": isinstance(self.result, Example),
        }
        if isinstance(self.result, Unusable):
            return facts | {"reason": self.result.reason, "tokens": self.whole}
        facts |= {
            "tokens": self.result.length,
            "supervised_tokens": self.result.num_supervised,
            "cut_tokens": self.cut,
            "text": [
                {
                    "text": part.data.decode("utf-8", "replace"),
                    "supervised": part.is_learned,
                    "control": part.is_special,
                }
                for part in self.stretches()
            ],
        }
        if with_ids:
            facts["ids"] = self.result.ids.tolist()
            facts["supervised"] = self.result.supervised.tolist()
        return facts


def inspect_row(opened: OpenedRows, number: int) -> InspectedRow:
    """Encode row `number` (from 1) of the file.

    Raises `DataError` if there are fewer rows, and for a row that training would refuse.
    """
    raw = _find(opened.file, number)
    form = recognise(raw)
    try:
        result, whole = opened.encoder.encode_counted(form)
    except MLXGPTError as e:
        raise DataError(f"{raw.where}: {e}") from e
    return InspectedRow(opened, number, raw, form, result, whole)


def _find(file: Path, number: int) -> RawRow:
    count = 0
    for count, raw in enumerate(read_rows(file), start=1):
        if count == number:
            return raw
    raise DataError(f"{file} has {_number(count, 'row')}, so there is no row {number:,}")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
