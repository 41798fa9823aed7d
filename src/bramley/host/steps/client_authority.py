"""The client CA of the agent: the certificates of clients that may read logs and metrics from it are signed by this CA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import agent_daemon, archive_install
from bramley.host.commands import Command, Probe, ReadFile, Stat, Write
from bramley.host.facts import Facts
from bramley.host.step import Step

_FILE = ReadFile(host.CLIENT_AUTHORITY)


@dataclass(frozen=True, slots=True)
class ClientAuthority(Step):
    """Keep the CA certificates on the Mac."""

    name: ClassVar[str] = "client-authority"
    title: ClassVar[str] = "client CA of the agent"

    content: bytes
    user: str

    def probes(self) -> list[Probe]:
        """Probe the file, and the running agent."""
        return [_FILE, Stat(host.AGENT_FOLDER), *agent_daemon.RESTART_PROBES]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Write the file if it differs; the agent reads it when it starts."""
        yield from archive_install.ensure_folder(
            facts, host.AGENT_FOLDER, owner=f"{self.user}:staff"
        )
        if facts.file(_FILE) == self.content:
            return
        yield from agent_daemon.note_restart(facts)
        yield Write(
            path=host.CLIENT_AUTHORITY,
            content=self.content,
            purpose="write the client CA of the agent",
            before=facts.file(_FILE),
        )
