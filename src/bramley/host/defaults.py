"""Settings of macOS that `defaults` reads and writes; a value is written only where it differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bramley.host.commands import Command, Run, RunProbe
from bramley.host.facts import Facts


@dataclass(frozen=True, slots=True)
class Default:
    """One value of a system-wide domain; every user may read it, only root writes it."""

    domain: str
    key: str
    value: bool | int | str

    @property
    def probe(self) -> RunProbe:
        """Return the probe of the current value."""
        return RunProbe(("defaults", "read", self.domain, self.key))

    def is_set(self, facts: Facts) -> bool:
        """Return whether the current value is the desired one."""
        current = facts.result(self.probe)
        return current.code == 0 and current.text == self._printed_value

    def write(self) -> Run:
        """Return the command that sets the value."""
        kinds = {bool: "-bool", int: "-int", str: "-string"}
        text = str(self.value).lower() if isinstance(self.value, bool) else self._printed_value
        return Run(
            argv=("defaults", "write", self.domain, self.key, kinds[type(self.value)], text),
            purpose=f"set {self.key} to {text}",
            as_root=True,
        )

    @property
    def _printed_value(self) -> str:
        return str(int(self.value)) if isinstance(self.value, bool) else str(self.value)


def write_changed(settings: Iterable[Default], facts: Facts) -> Iterator[Command]:
    """Yield the commands that set each value that differs."""
    return (setting.write() for setting in settings if not setting.is_set(facts))
