"""Tart, installed once: its signature holds the grant to the local network, which another one would lose.

A tart that answers stays, whoever brought it and whichever version it is. Only somebody who asks for it gets another one, on a Mac
without running VMs, and the one before is kept until the new one has answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import UnsupportedHost
from bramley.host import unpacking, vms
from bramley.host.artifacts import Artifact
from bramley.host.commands import Command, Find, Look, LookAt, Probe, Remove, Rename, Run, Write
from bramley.host.facts import Facts
from bramley.host.unpacking import Unpacking

WRAPPER = f"""\
#!/bin/sh
# The bundle holds what tart is entitled to, so tart is started inside of it.
exec {host.TART_BUNDLE}/{host.TART_IN_BUNDLE} "$@"
""".encode()
VERSION = Look((host.TART_BINARY, "--version"))

_BUNDLE = Find(host.TART_BUNDLE)
_BEFORE = Find(host.TART_BUNDLE_BEFORE)
_WRAPPER = LookAt(host.TART_BINARY, most=len(WRAPPER) + 1)
_IN_ARCHIVE = "tart.app"


@dataclass(frozen=True, slots=True)
class Tart:
    """Bring tart to a Mac that has none; `replace` asks for this version."""

    name: ClassVar[str] = "tart"
    title: ClassVar[str] = "tart, which runs VMs"

    artifact: Artifact
    replace: bool = False

    def wanted(self) -> None:
        """Stamp nothing: tart is no part of drift."""

    def looks(self) -> list[Probe]:
        """Ask whether tart answers, and for what lies where it belongs."""
        own: list[Probe] = [VERSION, _BUNDLE, _BEFORE, _WRAPPER, Find(host.PROGRAMS), vms.PROBE]
        return [*own, *self._unpacking.looks()]

    def refuse(self, seen: Facts) -> None:
        """Refuse to replace what VMs are running with."""
        if self._is_replaced(seen) and vms.may_run(seen):
            raise UnsupportedHost(
                f"tart {seen.said(VERSION).text} cannot be replaced by {self.artifact.version} while VMs run; drain the Mac first"
            )

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Install it where it is missing, replace it where that was asked for, and leave any other alone."""
        if self._is_replaced(seen) or (seen.found(_BUNDLE) is None and not _answers(seen)):
            yield from self._install(seen)
        else:
            yield from self._unpacking.clear_left(seen)
        if not _answers(seen):
            yield from _wrapper(seen)
            yield _answered()
        if seen.found(_BEFORE) or self._is_replaced(seen):
            yield Remove(path=host.TART_BUNDLE_BEFORE, purpose="remove the tart that was replaced")

    @property
    def _unpacking(self) -> Unpacking:
        return Unpacking(self.artifact, host.LIBRARIES, "tart")

    def _is_replaced(self, seen: Facts) -> bool:
        is_other = seen.said(VERSION).text != self.artifact.version
        return self.replace and _answers(seen) and is_other

    def _install(self, seen: Facts) -> Iterator[Command]:
        bundle = f"{self._unpacking.incoming}/{_IN_ARCHIVE}"
        yield from self._unpacking.bring(
            seen, answer=(f"{_IN_ARCHIVE}/{host.TART_IN_BUNDLE}", "--version")
        )
        if _answers(seen):
            yield vms.none_has_started()
        if seen.found(_BUNDLE):
            yield from _set_aside(seen)
        yield Rename(path=bundle, to=host.TART_BUNDLE, purpose=f"use tart {self.artifact.version}")
        if _answers(seen):
            yield from _wrapper(seen)
            yield _answered()
        yield from self._unpacking.clear()


def _answers(seen: Facts) -> bool:
    return seen.said(VERSION).code == 0


def _set_aside(seen: Facts) -> Iterator[Command]:
    if seen.found(_BEFORE):
        yield Remove(path=host.TART_BUNDLE_BEFORE, purpose="remove what an earlier change left")
    yield Rename(
        path=host.TART_BUNDLE,
        to=host.TART_BUNDLE_BEFORE,
        purpose="keep the tart of before until the new one has answered",
    )


def _wrapper(seen: Facts) -> Iterator[Command]:
    if seen.file(_WRAPPER) != WRAPPER:
        yield from unpacking.present(seen, host.PROGRAMS)
        yield Write(
            path=host.TART_BINARY,
            content=WRAPPER,
            mode=0o755,
            purpose="let tart be found",
            before=seen.file(_WRAPPER),
        )


def _answered() -> Run:
    return Run(
        argv=VERSION.argv,
        purpose="let tart answer",
        refusal=f"{host.TART_BINARY} is there and does not answer; look at {host.TART_BUNDLE}, remove it and run this again",
    )
