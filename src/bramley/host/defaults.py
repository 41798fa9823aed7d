"""Settings of macOS that `defaults` reads and writes: one value each, written only where it is another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bramley.host.commands import Command, Look, Run
from bramley.host.facts import Facts


@dataclass(frozen=True, slots=True)
class Default:
    """One value of a domain that is the whole Mac's; anybody may read it, and root writes it."""

    domain: str
    key: str
    value: bool | int | str

    @property
    def look(self) -> Look:
        """Ask for the value as it is."""
        return Look(("defaults", "read", self.domain, self.key))

    def is_set(self, seen: Facts) -> bool:
        """Tell whether the value is as wanted."""
        told = seen.said(self.look)
        return told.code == 0 and told.text == self._shown

    def write(self) -> Run:
        """Return what sets the value."""
        kinds = {bool: "-bool", int: "-int", str: "-string"}
        shown = str(self.value).lower() if isinstance(self.value, bool) else self._shown
        return Run(
            argv=("defaults", "write", self.domain, self.key, kinds[type(self.value)], shown),
            purpose=f"set {self.key} to {shown}",
            as_root=True,
        )

    @property
    def _shown(self) -> str:
        return str(int(self.value)) if isinstance(self.value, bool) else str(self.value)


def missing(wanted: Iterable[Default], seen: Facts) -> Iterator[Command]:
    """Yield what sets each value that is another."""
    for one in wanted:
        if not one.is_set(seen):
            yield one.write()
