"""Corpora -> their documents in pieces, one after the other, with a bar that says how far it is."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from mlxgpt.data import Corpus


def progress_bar() -> "Progress":
    """Return a bar on stderr that leaves nothing behind; without a terminal it shows nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description:16}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class Reading:
    """The documents of some corpora; counts their bytes and shows them as they go by."""

    def __init__(self, corpora: "Sequence[Corpus]", bar: "Progress") -> None:
        self.num_bytes = 0
        self._corpora = corpora
        self._bar = bar
        self._task: TaskID = bar.add_task("reading bytes", total=_bytes_of_text(corpora))

    def __iter__(self) -> Iterator[Iterator[str]]:
        for corpus in self._corpora:
            yield from map(self._counted, corpus.pieces())
        self._bar.update(self._task, total=self.num_bytes, completed=self.num_bytes)

    def _counted(self, pieces: Iterator[str]) -> Iterator[str]:
        for piece in pieces:
            yield piece
            self.num_bytes += _size(piece)
            self._bar.update(self._task, completed=self.num_bytes)


def beginnings(corpora: "Sequence[Corpus]", most_characters: int) -> Iterator[str]:
    """Yield the first texts of the corpora, each no longer than `most_characters` need it to be."""
    for corpus in corpora:
        for document in corpus.pieces():
            parts: list[str] = []
            length = 0
            for piece in document:
                parts.append(piece)
                length += len(piece)
                if length >= most_characters:
                    break
            yield "".join(parts)[:most_characters]


def _bytes_of_text(corpora: "Sequence[Corpus]") -> int | None:
    """Return how much text there will be, or None where the sizes of the files do not say it."""
    sources = [source for corpus in corpora for source in corpus.sources]
    if any(source.kind != "text" or source.compression != "none" for source in sources):
        return None
    return sum(source.size for source in sources)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
