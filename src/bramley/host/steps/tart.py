"""Tart, installed once: macOS ties the Local Network permission to its signature, so another build would lose it.

A working Tart stays, regardless of its origin and version. It is replaced only on request, on a Mac without running VMs, and
the previous one is kept until the new one has been run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import UnsupportedHost
from bramley.host import actions_runner_job, archive_install, shared_probes
from bramley.host.archive_install import ArchiveInstall
from bramley.host.artifacts import Artifact
from bramley.host.commands import (
    Command,
    Probe,
    ReadFile,
    Remove,
    Rename,
    Run,
    RunProbe,
    Stat,
    Write,
)
from bramley.host.facts import Facts
from bramley.host.step import Step

WRAPPER = f"""\
#!/bin/sh
# The bundle holds what tart is entitled to, so tart is started inside of it.
exec {host.TART_BUNDLE}/{host.TART_IN_BUNDLE} "$@"
""".encode()
VERSION = RunProbe((host.TART_BINARY, "--version"))

_BUNDLE = Stat(host.TART_BUNDLE)
_PREVIOUS = Stat(host.TART_BUNDLE_BEFORE)
_WRAPPER = ReadFile(host.TART_BINARY, max_bytes=len(WRAPPER) + 1)
_BUNDLE_IN_ARCHIVE = "tart.app"


@dataclass(frozen=True, slots=True)
class Tart(Step):
    """Install Tart on a Mac that has none; `replace` requests this version."""

    name: ClassVar[str] = "tart"
    title: ClassVar[str] = "tart, which runs VMs"

    artifact: Artifact
    replace: bool = False
    # Whether the Mac has a runner whose jobs use Tart without an agent.
    is_builder: bool = False

    def probes(self) -> list[Probe]:
        """Probe whether Tart runs, and its files."""
        own: list[Probe] = [
            VERSION,
            _BUNDLE,
            _PREVIOUS,
            _WRAPPER,
            Stat(host.PROGRAMS),
            shared_probes.RUNNING_VMS,
        ]
        jobs = [actions_runner_job.WORKER] if self.is_builder else []
        return [*own, *jobs, *self._install.probes()]

    def check_supported(self, facts: Facts) -> None:
        """Refuse to replace Tart while VMs run."""
        if self._needs_replacement(facts) and shared_probes.vms_may_run(facts):
            raise UnsupportedHost(
                f"tart {facts.result(VERSION).text} cannot be replaced by {self.artifact.version} while VMs run; drain the Mac first"
            )
        if self.is_builder and self._needs_replacement(facts) and actions_runner_job.is_busy(facts):
            raise UnsupportedHost(actions_runner_job.BUSY)

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Install Tart if it is missing, and replace it if requested."""
        if self._needs_replacement(facts) or (facts.stat(_BUNDLE) is None and not _runs(facts)):
            yield from self._install_bundle(facts)
        else:
            yield from self._install.remove_leftovers(facts)
        if not _runs(facts):
            yield from _wrapper(facts)
            yield _check_runs()
        if facts.stat(_PREVIOUS) or self._needs_replacement(facts):
            yield Remove(path=host.TART_BUNDLE_BEFORE, purpose="remove the replaced tart")

    @property
    def _install(self) -> ArchiveInstall:
        return ArchiveInstall(self.artifact, host.LIBRARIES, "tart")

    def _needs_replacement(self, facts: Facts) -> bool:
        is_other = facts.result(VERSION).text != self.artifact.version
        return self.replace and _runs(facts) and is_other

    def _install_bundle(self, facts: Facts) -> Iterator[Command]:
        bundle = f"{self._install.incoming}/{_BUNDLE_IN_ARCHIVE}"
        yield from self._install.unpack(
            facts, version_command=(f"{_BUNDLE_IN_ARCHIVE}/{host.TART_IN_BUNDLE}", "--version")
        )
        # The upload takes minutes, in which a VM may have started.
        if _runs(facts):
            yield shared_probes.require_no_vms()
            if self.is_builder:
                yield actions_runner_job.require_no_job()
        if facts.stat(_BUNDLE):
            yield from _keep_previous(facts)
        yield Rename(path=bundle, to=host.TART_BUNDLE, purpose=f"use tart {self.artifact.version}")
        if _runs(facts):
            yield from _wrapper(facts)
            yield _check_runs()
        yield from self._install.remove_temporary()


def _runs(facts: Facts) -> bool:
    return facts.result(VERSION).code == 0


def _keep_previous(facts: Facts) -> Iterator[Command]:
    if facts.stat(_PREVIOUS):
        yield Remove(
            path=host.TART_BUNDLE_BEFORE,
            purpose="remove the leftover of an interrupted replacement",
        )
    yield Rename(
        path=host.TART_BUNDLE,
        to=host.TART_BUNDLE_BEFORE,
        purpose="keep the previous tart until the new one has been run",
    )


def _wrapper(facts: Facts) -> Iterator[Command]:
    if facts.file(_WRAPPER) != WRAPPER:
        yield from archive_install.ensure_exists(facts, host.PROGRAMS)
        yield Write(
            path=host.TART_BINARY,
            content=WRAPPER,
            mode=0o755,
            purpose="write the wrapper of tart",
            before=facts.file(_WRAPPER),
        )


def _check_runs() -> Run:
    return Run(
        argv=VERSION.argv,
        purpose="check that tart runs",
        refusal=f"{host.TART_BINARY} exists and does not run; inspect {host.TART_BUNDLE}, remove it and run this again",
    )
