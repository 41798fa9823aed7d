"""The step that removes one part of a Mac, from functions of the module that knows the part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bramley.base.errors import UnsupportedHost
from bramley.host.commands import Command, Probe
from bramley.host.facts import Facts

Commands = Callable[[Facts], Iterator[Command]]


@dataclass(frozen=True, slots=True)
class RemovalStep:
    """Remove one part."""

    name: str
    title: str
    probe_list: tuple[Probe, ...]
    commands: Commands
    refusal: Callable[[Facts], str] = lambda _: ""
    follow_up: Callable[[Facts], Sequence[Probe]] = lambda _: ()

    def desired(self) -> None:
        """Return None: a removal has no stamp."""

    def probes(self) -> list[Probe]:
        """Probe what would be removed."""
        return list(self.probe_list)

    def follow_up_probes(self, facts: Facts) -> Sequence[Probe]:
        """Return the probes that depend on the first results."""
        return self.follow_up(facts)

    def check_supported(self, facts: Facts) -> None:
        """Refuse a removal that would interrupt work."""
        if reason := self.refusal(facts):
            raise UnsupportedHost(reason)

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Remove what exists."""
        yield from self.commands(facts)
