"""What became of the rows of a file, told so that it adds up to all of them."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_SHOWN = 3
Place = tuple[Path, int]


@dataclass
class Report:
    """Counts over rows; `add_used` and `add_dropped` are told of each once."""

    file: str
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> rows that are not trained on."""
    first: dict[str, list[Place]] = field(default_factory=dict)
    """Reason -> where the first of them stand."""
    lengths: list[int] = field(default_factory=list)
    """Ids of each used row."""
    supervised: int = 0
    cut_rows: int = 0
    cut_tokens: int = 0
    held_back: int = 0
    """Rows that were put aside for validation."""
    also_validated: int = 0
    """Used rows that stand in the validation rows too."""

    def add_used(self, length: int, supervised: int, before: int) -> None:
        """Count a row of `length` ids that had `before` of them before it was cut."""
        self.lengths.append(length)
        self.supervised += supervised
        self.cut_rows += before > length
        self.cut_tokens += before - length

    def add_dropped(self, reason: str, place: Place) -> None:
        """Count a row that cannot be used."""
        self.dropped[reason] += 1
        places = self.first.setdefault(reason, [])
        if len(places) < _SHOWN:
            places.append(place)

    @property
    def rows(self) -> int:
        """All rows that were read."""
        return len(self.lengths) + self.dropped.total() + self.held_back

    def lines(self) -> list[str]:
        """Return a few lines for a person."""
        held = f", {self.held_back:,} held back to validate on" if self.held_back else ""
        lines = [f"rows       {self.rows:,} in {self.file}: {len(self.lengths):,} used{held}"]
        for reason, count in self.dropped.most_common():
            where = ", ".join(f"{line}" for _, line in self.first[reason])
            more = ", ..." if count > _SHOWN else ""
            lines.append(f"dropped    {count:,}: {reason} (line {where}{more})")
        if self.cut_rows:
            rows = "1 row" if self.cut_rows == 1 else f"{self.cut_rows:,} rows"
            lines.append(f"cut        {self.cut_tokens:,} tokens of {rows}")
        if self.also_validated:
            lines.append(f"note       also among the rows to validate on: {self.also_validated:,}")
        total = sum(self.lengths)
        share = f" ({self.supervised / total:.0%})" if total else ""
        lines.append(f"tokens     {total:,}, {self.supervised:,} of them supervised{share}")
        if self.lengths:
            half, most, top = self._percentiles()
            lines.append(
                f"lengths    half of the rows up to {half:,} tokens, 9 of 10 up to {most:,}, "
                f"99 of 100 up to {top:,}, longest {max(self.lengths):,}"
            )
        return lines

    def facts(self) -> dict[str, Any]:
        """Return the same for JSON."""
        half, most, top = self._percentiles() if self.lengths else (0, 0, 0)
        return {
            "rows": self.rows,
            "used": len(self.lengths),
            "held_back": self.held_back,
            "dropped": dict(self.dropped),
            "cut_rows": self.cut_rows,
            "cut_tokens": self.cut_tokens,
            "tokens": sum(self.lengths),
            "supervised_tokens": self.supervised,
            "length_50": half,
            "length_90": most,
            "length_99": top,
            "length_max": max(self.lengths, default=0),
        }

    def _percentiles(self) -> tuple[int, int, int]:
        half, most, top = np.percentile(self.lengths, (50, 90, 99), method="inverted_cdf")
        return int(half), int(most), int(top)
