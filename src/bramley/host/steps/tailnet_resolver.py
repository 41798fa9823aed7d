"""The resolver of the tailnet: macOS sends queries for names of the tailnet, and only those, to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import archive_install, drift
from bramley.host.commands import Command, Probe, ReadFile, Run, Stat, Write
from bramley.host.facts import Facts
from bramley.host.step import Step

CONTENT = b"nameserver 100.100.100.100\n"
# In effect like CONTENT, but seen as unfinished by the next plan: negative answers are still cached.
_UNFINISHED = CONTENT + b"# the DNS cache is not flushed yet\n"
_FOLDER = Stat("/etc/resolver")
_FILE = ReadFile(host.TAILNET_RESOLVER)


@dataclass(frozen=True, slots=True)
class TailnetResolver(Step):
    """Make the names of the tailnet resolvable on this Mac."""

    name: ClassVar[str] = "tailnet-resolver"
    title: ClassVar[str] = "names of the tailnet"

    def desired(self) -> drift.DesiredPart:
        """Stamp the file."""
        return drift.DesiredPart(drift.Part.RESOLVER, {"resolver": drift.digest(CONTENT)})

    def probes(self) -> list[Probe]:
        """Probe the file."""
        return [_FOLDER, _FILE]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Write the file, and flush the DNS cache."""
        if facts.file(_FILE) == CONTENT:
            return
        yield from archive_install.ensure_exists(facts, _FOLDER.path)
        if facts.file(_FILE) != _UNFINISHED:
            yield _write(_UNFINISHED, "configure the tailnet's resolver", facts)
        yield from flush()
        yield _write(CONTENT, "record that the DNS cache is flushed", facts)


def flush() -> Iterator[Command]:
    """Yield the commands that flush the DNS cache of macOS, including negative answers."""
    yield Run(argv=("dscacheutil", "-flushcache"), purpose="flush the DNS cache", as_root=True)
    yield Run(
        argv=("killall", "-HUP", "mDNSResponder"),
        purpose="flush cached negative DNS answers",
        as_root=True,
        # Exit code 1: it does not run, so it has no cache.
        accepted_codes=(0, 1),
    )


def _write(content: bytes, purpose: str, facts: Facts) -> Write:
    return Write(
        path=host.TAILNET_RESOLVER, content=content, purpose=purpose, before=facts.file(_FILE)
    )
