"""The records of the ledger: one for each VM, and one for each image that was pulled or made into a golden base.

A VM's state only moves forward. STARTED is written before `tart run` is, so a disk that may have run a job is known as such
whatever happens afterwards.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

VERSION = 1


class VmState(StrEnum):
    """How far a VM has come."""

    CLAIMED = "claimed"  # the name is ours; a clone may exist and has never run
    CLONED = "cloned"  # the clone is whole, has its identity and its size, and has never run
    STARTED = "started"  # tart run was or will be issued: this disk never boots again
    ENDED = "ended"  # the run is over and how is written down here
    REPORTED = "reported"  # the API server has acknowledged the terminal status


class VmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One VM of ours."""

    vm: str
    namespace: str
    pod: str
    uid: str
    image: str
    digest: str = ""
    golden: str = ""
    pool: str = ""
    boot_id: str = ""
    state: VmState = VmState.CLAIMED
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    exit_reason: str = ""
    exit_message: str = ""
    # Taken over from an agent that kept no ledger.
    is_adopted: bool = False
    # Its guest has run a command for us, so from then on its silence means something.
    has_answered: bool = False
    version: int = VERSION


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One image that we pulled, and the golden base made of it, if it came to that.

    `references` are all names it was asked for by; `last_used` is renewed while a Pod or a VM needs it.
    """

    digest: str
    references: tuple[str, ...] = ()
    golden: str = ""
    is_pulled: bool = False
    is_staged: bool = False
    size_bytes: int = 0
    pulled_at: datetime | None = None
    last_used: datetime | None = None
    version: int = VERSION
