"""A Mac behind an SSH server, as host steps see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta

from bramley.base.clock import Clock
from bramley.host.artifacts import Depot
from bramley.host.commands import Command, Probe
from bramley.host.facts import Facts
from bramley.host.ssh.target import PATIENCE, Target


class SshConnection:
    """One Mac over one SSH connection, which is dialled again when it was lost."""

    def __init__(self, target: Target, *, clock: Clock, artifacts: Depot) -> None:
        self._target = target
        self._clock = clock
        self._artifacts = artifacts

    @property
    def host(self) -> str:
        """Return how people call this Mac."""
        return self._target.told

    async def do(self, command: Command) -> None:
        """Do one command to its end."""
        raise NotImplementedError

    async def look(self, probes: Collection[Probe]) -> Facts:
        """Ask all questions in one round trip."""
        raise NotImplementedError


@asynccontextmanager
async def open(
    target: Target, *, clock: Clock, artifacts: Depot, patience: timedelta = PATIENCE
) -> AsyncIterator[SshConnection]:
    """Connect to a Mac, waiting so long for its SSH server to be there, and disconnect in the end."""
    del patience
    yield SshConnection(target, clock=clock, artifacts=artifacts)
