"""The claim of a run on a Mac: of two concurrent runs the later one continues, and the earlier one is refused at its next command.

A claim is a file on the Mac that does not survive a reboot. It is written before the first change. It travels with every other command
as a `Guard`, and the Mac itself checks it: once a newer claim is written and the command in progress has ended, no command of an
earlier run changes anything. A newer run waits for that command for ten seconds and then stops it, so a run that died blocks no other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
            raise conflict(facts.file(CLAIM_FILE))
        # Never lower: otherwise a former leader could begin again after a run by hand, which has epoch 0.
        return msgspec.structs.replace(self, epoch=max(self.epoch, current.epoch))

    def guard(self) -> Guard:
        """Return the guard of commands that are executed under this claim."""
        return Guard(msgspec.json.encode(self).decode(), self.epoch)


@dataclass(frozen=True, slots=True)
class Guard:
    """A claim as it travels with commands; with `acquires`, the Mac is claimed first, unless its claim is not the `expected` one."""

    line: str
    epoch: int = 0
    acquires: bool = False
    expected: bytes | None = None

    def acquiring(self, expected: bytes | None) -> Guard:
        """Return the guard of the first commands of a run; the next boot of the Mac removes its claim, so also of the first after it."""
        return replace(self, acquires=True, expected=expected)

    def held(self) -> Guard:
        """Return the guard of the commands after the first ones."""
        return replace(self, acquires=False, expected=None)

    @property
    def content(self) -> bytes:
        """Return the content of the claim's file."""
        return self.line.encode() + b"\n"

    def write(self) -> Write:
        """Return the command that claims the Mac."""
        return Write(path=host.CLAIM, content=self.content, purpose="claim the Mac for this run")

    def check(self, current: bytes | None) -> None:
        """Raise Conflict if commands must not be executed on a Mac with this claim."""
        allowed = {self.content, *((None, b"", self.expected) if self.acquires else ())}
        if current not in allowed:
            raise conflict(current)


def conflict(content: bytes | None) -> Conflict:
    """Return the error of a run that was refused because of this claim."""
    current = _read(content)
    return Conflict(
        f"another run works on this Mac ({current.by[:200] if current else 'its claim is gone'}), so this one has stopped; wait until "
        "the other one has ended, then run this again"
    )


def _read(content: bytes | None) -> Claim | None:
    try:
        return msgspec.json.decode(content, type=Claim) if content else None
    except msgspec.MsgspecError:
        # A damaged claim blocks no run.
        return None
