"""The claim of a run on a Mac: of two concurrent runs the later one continues, and the earlier one stops before its next command.

A claim is a file on the Mac that does not survive a reboot. It is written before the first change and checked before every other
one. No run ever waits for a claim, so a run that died blocks no other. When another run begins, at most one command is in progress.
"""

from __future__ import annotations

import msgspec

from bramley.api.names import host
from bramley.base.errors import Conflict
from bramley.host.commands import ReadFile, Write
from bramley.host.facts import Facts

CLAIM_FILE = ReadFile(host.CLAIM, max_bytes=4096)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One run on a Mac: its unique id, and a description of its process for people.

    `epoch` grows with each change of the leading manager: a former leader must not begin a run after a newer leader has. 0 is for
    runs by hand, which may always begin.
    """

    run: str
    by: str
    epoch: int = 0

    def check_owner(self, facts: Facts, *, is_held: bool) -> Claim:
        """Return this claim as it must be written; Conflict if the Mac belongs to another run."""
        current = _read(facts.file(CLAIM_FILE))
        if current is None or current.run == self.run:
            return self
        if is_held or 0 < self.epoch < current.epoch:
            raise Conflict(
                f"another run works on this Mac ({current.by[:200]}), so this one has stopped; wait until the other one has ended, "
                "then run this again"
            )
        # Never lower: otherwise a former leader could begin again after a run by hand, which has epoch 0.
        return msgspec.structs.replace(self, epoch=max(self.epoch, current.epoch))

    def write(self) -> Write:
        """Return the command that claims the Mac."""
        content = msgspec.json.encode(self) + b"\n"
        return Write(path=host.CLAIM, content=content, purpose="claim the Mac for this run")


def _read(content: bytes | None) -> Claim | None:
    try:
        return msgspec.json.decode(content, type=Claim) if content else None
    except msgspec.MsgspecError:
        # A damaged claim blocks no run.
        return None
