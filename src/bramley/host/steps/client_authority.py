"""Whom the agent lets ask for logs and figures: the authority that signs their certificates, as a file on the Mac."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import restarting, unpacking
from bramley.host.commands import Command, Find, LookAt, Probe, Write
from bramley.host.facts import Facts

_FILE = LookAt(host.CLIENT_AUTHORITY)


@dataclass(frozen=True, slots=True)
class ClientAuthority:
    """Keep the certificate of the authority on the Mac."""

    name: ClassVar[str] = "client-authority"
    title: ClassVar[str] = "whom the agent lets ask"

    content: bytes
    user: str

    def wanted(self) -> None:
        """Stamp nothing: clusters differ, and it is seen by looking."""

    def looks(self) -> list[Probe]:
        """Ask for the file, and for the running agent."""
        return [_FILE, Find(host.AGENT_FOLDER), *restarting.LOOKS]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Write the file if it is another; the agent reads it when it starts."""
        yield from unpacking.folder(seen, host.AGENT_FOLDER, owner=f"{self.user}:staff")
        if seen.file(_FILE) == self.content:
            return
        yield from restarting.note(seen)
        yield Write(
            path=host.CLIENT_AUTHORITY,
            content=self.content,
            purpose="write the authority of those who may ask the agent",
            before=seen.file(_FILE),
        )
