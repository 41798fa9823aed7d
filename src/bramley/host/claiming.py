"""Who works on a Mac now: of two runs at once the later one goes on, and the earlier one stops before its next command.

A claim is a file on the Mac that is gone after its next start. It is written before the first change, looked at before every other,
and never waited for: whoever died with one keeps nobody out. What is under way when another run begins is one command at most.
"""

from __future__ import annotations

import msgspec

from bramley.api.names import host
from bramley.base.errors import Conflict
from bramley.host.commands import LookAt, Write
from bramley.host.facts import Facts

FILE = LookAt(host.CLAIM, most=4096)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One run over a Mac: its own word, and who it is for people.

    `epoch` grows with each change of the manager that leads; one who led before must not begin once a later one has. 0 is for
    people, who may always begin.
    """

    run: str
    by: str
    epoch: int = 0

    def heed(self, seen: Facts, *, is_held: bool) -> Claim:
        """Return this claim as it is to be written; Conflict if the Mac is another run's."""
        found = _read(seen.file(FILE))
        if found is None or found.run == self.run:
            return self
        if is_held or 0 < self.epoch < found.epoch:
            raise Conflict(
                f"another run works on this Mac ({found.by[:200]}), so this one has stopped; wait for the other's end, then look "
                "again"
            )
        return msgspec.structs.replace(self, epoch=max(self.epoch, found.epoch))

    def write(self) -> Write:
        """Return what claims the Mac."""
        content = msgspec.json.encode(self) + b"\n"
        return Write(path=host.CLAIM, content=content, purpose="claim the Mac for this run")


def _read(content: bytes | None) -> Claim | None:
    try:
        return msgspec.json.decode(content, type=Claim) if content else None
    except msgspec.MsgspecError:
        return None
