"""What each tier of tests needs, whether it is here, and the command that brings it."""

from __future__ import annotations

NAMES = ("unit", "meta", "scenarios", "contract", "process", "cluster")


def missing_for(tier: str) -> str:
    """Return what the tier lacks on this machine and how to get it; empty when it can run."""
    return ""
