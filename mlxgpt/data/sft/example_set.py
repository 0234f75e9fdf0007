"""Files of rows -> the examples to train on and those to validate on, with a report."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mlxgpt import seeding
from mlxgpt.data.sft.config import SFTDataConfig
from mlxgpt.data.sft.encoder import RowEncoder, Unusable
from mlxgpt.data.sft.example import Example
from mlxgpt.data.sft.forms import Form, Passage, recognise
from mlxgpt.data.sft.report import Place, Report
from mlxgpt.data.sft.row_files import read_rows
from mlxgpt.data.sft.row_folder import find_files
from mlxgpt.errors import DataError, MLXGPTError

_FRACTION, _ENOUGH = 0.05, 10


class ExampleSet:
    """Examples in the order of their rows. Never empty."""

    def __init__(
        self,
        kept: Sequence[tuple[Form, Example, Place]],
        report: Report,
        encoder: RowEncoder,
        dropout: float,
        seed: int,
    ) -> None:
        """`dropout` is that of `drawn`."""
        self._forms = [form for form, _, _ in kept]
        self.examples: Sequence[Example] = [example for _, example, _ in kept]
        """Without dropout."""
        self.sources: Sequence[Place] = [place for _, _, place in kept]
        """File and line of each."""
        self.report = report
        self._encoder, self._dropout, self._seed = encoder, dropout, seed

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def uses_template(self) -> bool:
        """Whether any row is more than a text, so that a chat template has something to do."""
        return any(not isinstance(form, Passage) for form in self._forms)

    @property
    def fingerprint(self) -> str:
        """Names what is learned: ids and masks, not files."""
        digest = hashlib.blake2b(f"{self._dropout:g}".encode(), digest_size=16)
        for name in map(fingerprint, self.examples):
            digest.update(name)
        return digest.hexdigest()

    def drawn(self, index: int, draw: int) -> Example:
        """Return example `index` as it is in draw `draw`: with dropout encoded anew each time.

        If it comes out too long to be used, it is taken without.
        """
        if not self._dropout:
            return self.examples[index]
        seed = seeding.derive(self._seed, f"sft-dropout/{index}", draw)
        found = self._encoder.encode(self._forms[index], dropout=self._dropout, seed=seed)
        return self.examples[index] if isinstance(found, Unusable) else found


def fingerprint(example: Example) -> bytes:
    """Return what names an example."""
    digest = hashlib.blake2b(example.ids.tobytes(), digest_size=16)
    digest.update(example.supervised.tobytes())
    return digest.digest()


def load_sets(
    config: SFTDataConfig,
    encoder: RowEncoder,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ExampleSet, ExampleSet | None]:
    """Read and encode the rows: (to train on, to validate on, if there are any).

    Rows are held back by a draw that depends on `seed` and on their number. Raises `DataError` for
    a row that is refused, and if there is none to train on.
    """
    file, beside = find_files(config.train)
    if beside is not None and config.val_fraction is not None:
        raise DataError(
            f"{beside} is there to validate on, so that --val-fraction has no effect; leave it out"
        )
    valid_file = Path(config.valid).expanduser() if config.valid else beside
    rows = list(_forms(file))
    held = set() if valid_file else _held_back(len(rows), config.val_fraction, seed)
    train, report = _encoded(
        [row for i, row in enumerate(rows) if i not in held], encoder, file.name, progress
    )
    report.held_back = len(held)
    if not train:
        reasons = "; ".join(f"{count:,}: {why}" for why, count in report.dropped.most_common())
        raise DataError(f"{file}: no row to train on; of {report.rows:,} rows {reasons}")
    others = list(_forms(valid_file)) if valid_file else [rows[i] for i in sorted(held)]
    name = valid_file.name if valid_file else file.name
    valid, about = _encoded(others, encoder, name, None)
    if valid_file and not valid:
        raise DataError(f"{valid_file}: no row to validate on")
    known = {fingerprint(example) for _, example, _ in valid}
    report.also_validated = sum(fingerprint(example) in known for _, example, _ in train)
    training = ExampleSet(train, report, encoder, config.bpe_dropout, seed)
    return training, ExampleSet(valid, about, encoder, 0.0, seed) if valid else None


def _forms(file: Path) -> Iterable[tuple[Form, Place]]:
    for row in read_rows(file):
        yield recognise(row), (row.file, row.line)


def _held_back(count: int, fraction: float | None, seed: int) -> set[int]:
    if fraction == 0 or count < 2 or (fraction is None and count < _ENOUGH):
        return set()
    number = round(count * (_FRACTION if fraction is None else fraction))
    number = min(max(1, number), count - 1)
    return set(seeding.generator(seed, "sft-split").permutation(count)[:number].tolist())


def _encoded(
    rows: Sequence[tuple[Form, Place]],
    encoder: RowEncoder,
    name: str,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[tuple[Form, Example, Place]], Report]:
    report, kept = Report(name), []
    for number, (form, place) in enumerate(rows):
        try:
            found, before = encoder.encode_counted(form)
        except MLXGPTError as e:
            raise DataError(f"{place[0]}:{place[1]}: {e}") from e
        if isinstance(found, Unusable):
            report.add_dropped(found.reason, place)
        else:
            report.add_used(found.length, found.num_supervised, before)
            kept.append((form, found, place))
        if progress is not None and number % 64 == 0:
            progress(number, len(rows))
    return kept, report
