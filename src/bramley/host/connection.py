"""The seam to one Mac: do a command, ask questions. Real side: SSH; simulated side: the model of a Mac, in process.

Guarantees of every side: a command has been done when `do` returns, and may or may not have been done when it raises
HostUnreachable; a file is its old self or its new one, never a mixture; no secret is seen in an error, in a log or in the
process table of either machine; every call ends by its deadline.
Errors: HostUnreachable (the line), CommandFailed (the program), TimedOut (its deadline), HostKeyChanged, LoginRefused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from bramley.host.commands import Command, Probe
from bramley.host.facts import Facts


class Connection(Protocol):
    """One Mac."""

    @property
    def host(self) -> str:
        """Return how people call this Mac, for progress and errors."""
        ...

    async def do(self, command: Command) -> None:
        """Do one command to its end."""
        ...

    async def look(self, probes: Collection[Probe]) -> Facts:
        """Ask all questions in one round trip."""
        ...
