"""The pair of archives of this Linux machine, which tests and simulated Macs install."""

from __future__ import annotations

from bramley.app.agent_bundle import pair
from bramley.app.agent_bundle.pair import Pair, build
from tools.kube.programs import user_cache

__all__ = ["Pair", "build", "cached"]


def cached() -> Pair:
    """Return the pair from the user's cache; the first call after a change makes it there."""
    return pair.cached(user_cache() / "agent")
