"""The names of a Mac, set to the name of its Node, so that logs and the network use the same name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.host.commands import Command, Run, RunProbe
from bramley.host.facts import Facts
from bramley.host.step import Step

# The Bonjour name is one DNS label: no dots, and at most this length.
_MAX_LABEL_LENGTH = 63


@dataclass(frozen=True, slots=True)
class Hostname(Step):
    """Set the names of a Mac to the name of its Node."""

    name: ClassVar[str] = "hostname"
    title: ClassVar[str] = "the Mac's names"

    node_name: str

    def probes(self) -> list[RunProbe]:
        """Probe all three names."""
        return [_current(kind) for kind in self._names()]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Set each name that differs."""
        for kind, value in self._names().items():
            current = facts.result(_current(kind))
            if current.code != 0 or current.text != value:
                yield Run(
                    argv=("scutil", "--set", kind, value),
                    purpose=f"set {kind} to {value}",
                    as_root=True,
                )

    def _names(self) -> dict[str, str]:
        label = self.node_name.replace(".", "-")[:_MAX_LABEL_LENGTH].rstrip("-")
        return {
            "HostName": self.node_name,
            "LocalHostName": label,
            "ComputerName": self.node_name,
        }


def _current(kind: str) -> RunProbe:
    return RunProbe(("scutil", "--get", kind))
