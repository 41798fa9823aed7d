"""The pair of archives of this Linux machine, which tests and simulated Macs install."""

from __future__ import annotations

from bramley.app.agent_bundle import agent_archives
from bramley.app.agent_bundle.agent_archives import AgentArchives, build
from tools.kube.programs import user_cache

__all__ = ["AgentArchives", "build", "cached"]


def cached() -> AgentArchives:
    """Return the pair from the user's cache; the first call after a change makes it there."""
    return agent_archives.cached(user_cache() / "agent")
