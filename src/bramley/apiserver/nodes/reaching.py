"""All ways to the agents, as the handlers see them: open a log, ask what is used. Built once per server, closed with it."""

from __future__ import annotations

import msgspec

from bramley.apiserver.nodes.identity import Issue, NodeIdentity
from bramley.apiserver.nodes.lines import Lines, NodeLines
from bramley.apiserver.nodes.usages import Usages
from bramley.base.clock import Clock


class Nodes(msgspec.Struct, frozen=True):
    """The lines to agents, and what they said of late."""

    lines: Lines
    usages: Usages

    async def close(self) -> None:
        """End what is under way, such as logs that are followed."""
        await self.lines.close()


def nodes(issue: Issue, *, authority: str, clock: Clock, checked: bool = False) -> Nodes:
    """Return the ways to agents; `issue` makes our client certificates, `authority` is told to NodeLines."""
    lines = NodeLines(NodeIdentity(issue, clock), authority=authority, checked=checked)
    return Nodes(lines, Usages(lines, clock))
