"""The names of a Mac: those of its Node, so that logs, people and the network call it alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.host.commands import Command, Look, Run
from bramley.host.facts import Facts

# Bonjour's name is one label of DNS: it takes no dots, and no more than this.
_LONGEST_LABEL = 63


@dataclass(frozen=True, slots=True)
class Hostname:
    """Give a Mac the name of its Node."""

    name: ClassVar[str] = "hostname"
    title: ClassVar[str] = "the Mac's names"

    node_name: str

    def wanted(self) -> None:
        """Stamp nothing: names belong to one Mac and are seen by looking."""

    def looks(self) -> list[Look]:
        """Ask for all three names."""
        return [_current(kind) for kind in self._names()]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Set each name that is missing or another."""
        for kind, value in self._names().items():
            told = seen.said(_current(kind))
            if told.code != 0 or told.text != value:
                yield Run(
                    argv=("scutil", "--set", kind, value),
                    purpose=f"set {kind} to {value}",
                    as_root=True,
                )

    def _names(self) -> dict[str, str]:
        label = self.node_name.replace(".", "-")[:_LONGEST_LABEL].rstrip("-")
        return {
            "HostName": self.node_name,
            "LocalHostName": label,
            "ComputerName": self.node_name,
        }


def _current(kind: str) -> Look:
    return Look(("scutil", "--get", kind))
