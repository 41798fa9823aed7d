"""Names of the tailnet, and only those, are asked of the tailnet's own resolver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import drift, unpacking
from bramley.host.commands import Command, Find, LookAt, Probe, Run, Write
from bramley.host.facts import Facts

CONTENT = b"nameserver 100.100.100.100\n"
# In force like the other, and seen as unfinished by the next plan: what was asked before is still remembered as unknown.
_UNFINISHED = CONTENT + b"# what was asked before is still to be forgotten\n"
_FOLDER = Find("/etc/resolver")
_FILE = LookAt(host.TAILNET_RESOLVER)


@dataclass(frozen=True, slots=True)
class TailnetResolver:
    """Let this Mac find names of the tailnet."""

    name: ClassVar[str] = "tailnet-resolver"
    title: ClassVar[str] = "names of the tailnet"

    def wanted(self) -> drift.Wanted:
        """Stamp the file."""
        return drift.Wanted(drift.Part.RESOLVER, {"resolver": drift.digest(CONTENT)})

    def looks(self) -> list[Probe]:
        """Ask for the file."""
        return [_FOLDER, _FILE]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Write the file, and have what was remembered before forgotten."""
        if seen.file(_FILE) == CONTENT:
            return
        yield from unpacking.present(seen, _FOLDER.path)
        if seen.file(_FILE) != _UNFINISHED:
            yield _written(_UNFINISHED, "name the tailnet's resolver", seen)
        yield from flush()
        yield _written(CONTENT, "note that its names are looked for anew", seen)


def flush() -> Iterator[Command]:
    """Yield what makes macOS forget the names that it asked for, also those that nobody knew."""
    yield Run(argv=("dscacheutil", "-flushcache"), purpose="forget known names", as_root=True)
    yield Run(
        argv=("killall", "-HUP", "mDNSResponder"),
        purpose="forget unknown names",
        as_root=True,
        # One that does not run remembers nothing.
        accepts=(0, 1),
    )


def _written(content: bytes, purpose: str, seen: Facts) -> Write:
    return Write(
        path=host.TAILNET_RESOLVER, content=content, purpose=purpose, before=seen.file(_FILE)
    )
