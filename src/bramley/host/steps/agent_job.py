"""The agent's job: its property list, the folders it writes to, and a process that answers.

An unchanged property list is not loaded again: macOS holds repeated loads against a daemon and in the end keeps it down. Then the
process alone is replaced, and only if what it was started with has changed, or it does not answer. Neither ends a VM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from bramley.api.names import agent, host, launchd
from bramley.base.errors import BadConfiguration, NotConverged
from bramley.host import agent_log, drift, launch_daemon, plist, restarting, unpacking
from bramley.host.commands import Command, Find, Look, LookAt, Probe, Run, Wait, Write
from bramley.host.facts import FILE, Facts
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.plist import AgentJob

STARTED_WITHIN = timedelta(seconds=60)
# For as long it must have answered before it counts as running: one that fails at once does so within it.
SETTLED_AFTER = 5
_FOLDERS = (
    host.VM_LOGS,
    host.VM_USER_DATA,
    host.VNC_CONTROL,
    host.AGENT_FOLDER,
    host.AGENT_STATE,
)
_PLIST = LookAt(launchd.daemon_plist(launchd.AGENT))
_NODE = re.compile(rf"^\[\+\]{agent.HEALTH_OF_NODE}(\S+) ok$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Job:
    """Keep the agent running with what is known of this Mac."""

    name: ClassVar[str] = "agent-job"
    title: ClassVar[str] = "the agent's job"

    job: AgentJob

    def wanted(self) -> drift.Wanted:
        """Stamp the property list as it is without what only the Mac knows."""
        digest = drift.digest(plist.render(self.job))
        return drift.Wanted(drift.Part.AGENT_JOB, {"plist": digest})

    def looks(self) -> list[Probe]:
        """Ask for the property list, the folders, the process, and how it does."""
        places = [Find(path) for path in (*_FOLDERS, host.AGENT_LOG, _PLIST.path)]
        return [_PLIST, *places, *restarting.LOOKS, health(self.job)]

    def looks_further(self, seen: Facts) -> Sequence[Probe]:
        """Ask for the last words of an agent that does not do well."""
        is_there = seen.found(Find(_PLIST.path)) is not None
        return [agent_log.LAST] if is_there and not is_healthy(self.job, seen) else []

    def refuse(self, seen: Facts) -> None:
        """Refuse a property list that does not say whether this Mac is a builder, if nobody else does."""
        is_unread = seen.file(_PLIST) is None and seen.found(Find(_PLIST.path)) is not None
        if is_unread and self.job.is_builder is None:
            raise BadConfiguration(
                f"{_PLIST.path} cannot be read; say whether this Mac is a builder, which it may be set to be"
            )
        self._daemon(seen)

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Load the property list if it is another; restart the process if it is older than what it runs."""
        yield from self._places(seen)
        daemon = self._daemon(seen)
        starting = [*daemon.plan(seen)]
        if daemon.runs_on(seen):
            # At most its property list has got into other hands.
            yield from starting
            starting.clear()
        if not starting and (restarting.is_due(seen) or not is_healthy(self.job, seen)):
            starting = [launch_daemon.restart(launchd.AGENT)]
        yield from starting
        if starting:
            yield from self._started()

    def confirm(self, seen: Facts) -> None:
        """Say that the process was not replaced, or does not live, where that is so."""
        if restarting.is_due(seen):
            raise NotConverged(
                f"the agent still has the process from before its restart; see `sudo launchctl print system/{launchd.AGENT}`"
            )
        if not is_healthy(self.job, seen):
            raise NotConverged(f"{trouble(self.job, seen)}; {agent_log.told(seen)}")

    def _daemon(self, seen: Facts) -> LaunchDaemon:
        current = seen.file(_PLIST) or b""
        return LaunchDaemon(launchd.AGENT, plist.render(self.job, current=current))

    def _started(self) -> Iterator[Command]:
        yield Wait(
            look=health(self.job),
            purpose="wait for the agent to answer",
            within=STARTED_WITHIN,
            # What is wrong is told from the facts, with the agent's last words.
            else_go_on=True,
        )
        yield Run(argv=("sleep", str(SETTLED_AFTER)), purpose="see whether the agent goes on")

    def _places(self, seen: Facts) -> Iterator[Command]:
        owner = f"{self.job.user}:staff"
        for path in _FOLDERS:
            yield from unpacking.folder(seen, path, owner=owner)
        log = seen.found(Find(host.AGENT_LOG))
        if log is None:
            # launchd opens it as the agent's user, who may not make files there.
            purpose = "make the agent's log"
            yield Write(path=host.AGENT_LOG, content=b"", purpose=purpose, owner=owner)
        elif log.kind == FILE and log.owner != owner:
            yield Run(
                argv=("chown", owner, host.AGENT_LOG),
                purpose="give the agent's log to its user",
                as_root=True,
            )


def health(job: AgentJob) -> Look:
    """Return the question that a living agent answers on its own Mac, with the name of its Node."""
    return _asked(job, "/healthz?verbose")


def readiness(job: AgentJob) -> Look:
    """Return the question that the agent answers well while its API server lets it do its work."""
    return _asked(job, "/readyz")


def is_healthy(job: AgentJob, seen: Facts) -> bool:
    """Tell whether the agent has a process and answers."""
    return not trouble(job, seen)


def trouble(job: AgentJob, seen: Facts) -> str:
    """Return what is wrong with the agent's process; empty if it lives."""
    said = seen.said(health(job))
    # Agents before this one do not say whose they are.
    named = _NODE.search(said.text) if said.code == 0 else None
    if named and named[1] != job.node_name:
        return (
            f"what answers on {job.health} is the agent of {named[1]}, and not of {job.node_name}; "
            "end it, or give this agent other addresses"
        )
    if said.code == 0 and launch_daemon.pid(seen.said(restarting.AGENT)):
        return ""
    return "the agent does not answer on this Mac"


def _asked(job: AgentJob, path: str) -> Look:
    address, _, port = job.health.rpartition(":")
    url = f"http://{address or '127.0.0.1'}:{port}{path}"
    return Look(("curl", "-f", "-s", "-S", "--max-time", "5", url))
