"""The report of a benchmark, as a table and as one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Report:
    """One run of one benchmark; `met` is, by goal, whether the ratio of the same name reaches it."""

    bench: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    ratios: Mapping[str, float]
    figures: Mapping[str, Any]
    goals: Mapping[str, str]
    met: Mapping[str, bool]

    def line(self) -> str:
        """Return the whole report as one line of JSON."""
        names = ("bench", "ratios", "figures", "goals")
        line = {name: getattr(self, name) for name in names}
        missed = sorted(name for name, met in self.met.items() if not met)
        return json.dumps({**line, "missed": missed, "met": not missed}, ensure_ascii=False)

    def table(self) -> Iterator[str]:
        """Return the lines of an aligned Markdown table."""
        shown = [tuple(self.columns), *map(tuple, self.rows)]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        for number, row in enumerate(shown):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f"| {' | '.join(cells)} |"
            if number == 0:
                yield f"|{'|'.join('-' * (width + 2) for width in widths)}|"
