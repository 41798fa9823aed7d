"""What the agent made on this host, on disk."""

from bramley.agent.ledger.ledger import Ledger
from bramley.agent.ledger.records import ImageRecord, VmRecord, VmState
from bramley.agent.ledger.shelf import LedgerUnavailable, Unreadable

__all__ = ["ImageRecord", "Ledger", "LedgerUnavailable", "Unreadable", "VmRecord", "VmState"]
