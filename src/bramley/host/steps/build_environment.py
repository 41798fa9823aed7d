"""The environment of builds: a cache folder of the user, and the variable that names it, for every zsh of the Mac."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import UnsupportedHost
from bramley.host import archive_install, drift
from bramley.host.commands import ROOT, Command, Probe, ReadFile, Remove, Stat, Write
from bramley.host.facts import FILE, Facts
from bramley.host.step import Step

LINE = f"export {host.BUILD_CACHE_VARIABLE}={host.BUILD_CACHE}".encode()
_CACHE = Stat(host.BUILD_CACHE)
_FILE, _FILE_STAT = ReadFile(host.ZSHENV, as_root=True), Stat(host.ZSHENV)
PROBES: tuple[Probe, ...] = (_CACHE, _FILE, _FILE_STAT)


@dataclass(frozen=True, slots=True)
class BuildEnvironment(Step):
    """Keep the cache folder, and exactly one line in zsh's file; all other lines stay."""

    name: ClassVar[str] = "build-environment"
    title: ClassVar[str] = "environment of builds"

    user: str

    def desired(self) -> drift.DesiredPart:
        """Stamp the line."""
        return drift.DesiredPart(drift.Part.BUILD_ENVIRONMENT, {"line": drift.digest(LINE)})

    def probes(self) -> list[Probe]:
        """Probe the folder and the file."""
        return [*PROBES]

    def check_supported(self, facts: Facts) -> None:
        """Refuse a file whose other lines could not be kept."""
        if problem := file_problem(facts):
            raise UnsupportedHost(problem)

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Create the folder, and write the file if the line is missing or repeated."""
        yield from archive_install.ensure_folder(
            facts, host.BUILD_CACHE, owner=f"{self.user}:staff"
        )
        content = facts.file(_FILE) or b""
        if content.split(b"\n").count(LINE) != 1:
            yield _write(facts, with_line(content), "set the folder of builds for every zsh")


def file_problem(facts: Facts) -> str:
    """Return why the file must not be written; empty if it may."""
    stat, content = facts.stat(_FILE_STAT), facts.file(_FILE)
    if stat is not None and stat.kind != FILE:
        return f"{host.ZSHENV} is a {stat.kind}, not a file; replace it by a file"
    if stat is not None and stat.size > len(content or b""):
        return f"{host.ZSHENV} has {stat.size} bytes and cannot be read completely; make it smaller"
    return ""


def remove(facts: Facts) -> Iterator[Command]:
    """Yield the removal of the line, and then of the folder; a file that contained nothing else is removed."""
    content = facts.file(_FILE) or b""
    rest = without_line(content)
    if rest != content:
        if rest:
            yield _write(facts, rest, "remove the folder of builds from every zsh")
        else:
            yield Remove(path=host.ZSHENV, purpose=f"remove {host.ZSHENV}")
    if facts.stat(_CACHE):
        yield Remove(path=host.BUILD_CACHE, purpose=f"remove {host.BUILD_CACHE}")


def with_line(content: bytes) -> bytes:
    """Return the file with the line once: where it was first, or at the end."""
    lines = content.split(b"\n")
    if LINE not in lines:
        lacks_newline = bool(content) and not content.endswith(b"\n")
        return content + (b"\n" if lacks_newline else b"") + LINE + b"\n"
    end = lines.index(LINE) + 1
    return b"\n".join([*lines[:end], *(line for line in lines[end:] if line != LINE)])


def without_line(content: bytes) -> bytes:
    """Return the file without the line; all others stay, byte for byte."""
    return b"\n".join(line for line in content.split(b"\n") if line != LINE)


def _write(facts: Facts, content: bytes, purpose: str) -> Write:
    stat = facts.stat(_FILE_STAT)
    return Write(
        path=host.ZSHENV,
        content=content,
        purpose=purpose,
        mode=stat.mode if stat else 0o644,
        owner=stat.owner if stat else ROOT,
        before=facts.file(_FILE),
    )
