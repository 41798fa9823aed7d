"""What may go wrong between us and a simulated Mac in process, and on it: each at a chosen command, or until mended."""

from __future__ import annotations


class Faults:
    """The faults of one Mac as a connection in process meets them; commands are counted from 0 over all its connections."""
