"""The agent's job: its property list, the folders it writes to, and a process that responds.

An unchanged property list is not loaded again: after repeated loads launchd throttles a daemon and finally keeps it down. Then only
the process is restarted, if its files have changed since its start or it does not respond. Neither ends a VM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import ClassVar

from bramley.api.names import agent, host, launchd
from bramley.base.errors import BadConfiguration, NotConverged
from bramley.host import agent_daemon, archive_install, drift, launch_daemon
from bramley.host.agent_daemon import AgentJob
from bramley.host.commands import Command, Probe, ReadFile, Run, RunProbe, Stat, Wait, Write
from bramley.host.facts import FILE, Facts
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.step import Step

START_TIMEOUT = timedelta(seconds=60)
# An agent that fails right after its start does so within this time.
SETTLE_SECONDS = 5
_FOLDERS = (
    host.VM_LOGS,
    host.VM_USER_DATA,
    host.VNC_CONTROL,
    host.AGENT_FOLDER,
    host.AGENT_STATE,
)
# The files without which the agent does not start if its flags name them.
_FILES = (host.CLIENT_AUTHORITY, host.REGISTRY_CREDENTIALS)
_PLIST = ReadFile(launchd.daemon_plist(launchd.AGENT))
_NODE = re.compile(rf"^\[\+\]{agent.HEALTH_OF_NODE}(\S+) ok$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Job(Step):
    """Keep the agent running with the configuration of this Mac."""

    name: ClassVar[str] = "agent-job"
    title: ClassVar[str] = "the agent's job"

    job: AgentJob
    # The files that this run does not write: because of --only, with their steps, and because of --skip.
    unselected_files: Mapping[str, str] = field(default_factory=dict, hash=False)
    skipped_files: frozenset[str] = frozenset()

    def desired(self) -> drift.DesiredPart | None:
        """Stamp the property list, rendered without the current one of the Mac; without a stamp if a flag may be left out."""
        if self.skipped_files:
            return None
        digest = drift.digest(agent_daemon.render_plist(self.job))
        return drift.DesiredPart(drift.Part.AGENT_JOB, {"plist": digest})

    def probes(self) -> list[Probe]:
        """Probe the property list, the folders, the process and its health."""
        paths = [Stat(path) for path in (*_FOLDERS, host.AGENT_LOG, _PLIST.path, *_FILES)]
        return [_PLIST, *paths, *agent_daemon.RESTART_PROBES, health_probe(self.job)]

    def follow_up_probes(self, facts: Facts) -> Sequence[Probe]:
        """Probe the end of the log of an unhealthy agent."""
        is_installed = facts.stat(Stat(_PLIST.path)) is not None
        return [agent_daemon.LOG_TAIL] if is_installed and not is_healthy(self.job, facts) else []

    def check_supported(self, facts: Facts) -> None:
        """Refuse an unreadable property list, unless the specification sets whether this Mac is a builder."""
        is_unreadable = facts.file(_PLIST) is None and facts.stat(Stat(_PLIST.path)) is not None
        if is_unreadable and self.job.is_builder is None:
            raise BadConfiguration(
                f"{_PLIST.path} cannot be read, so it is unknown whether this Mac is a builder; set builder explicitly"
            )
        # The others are written earlier in this run.
        for path in _missing_files(facts) & self.unselected_files.keys():
            raise BadConfiguration(
                f"the agent would not start, because {path} is missing; apply the step {self.unselected_files[path]}, too"
            )
        self._daemon(facts)

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Load the property list if it differs; restart the process if it is older than its files."""
        yield from self._folders(facts)
        daemon = self._daemon(facts)
        start_commands = [*daemon.plan(facts)]
        if daemon.is_running_current(facts):
            # Only the owner or mode of its property list can differ.
            yield from start_commands
            start_commands.clear()
        if not start_commands and (
            agent_daemon.is_restart_due(facts) or not is_healthy(self.job, facts)
        ):
            start_commands = [launch_daemon.restart(launchd.AGENT)]
        yield from start_commands
        if start_commands:
            yield from self._wait_started()

    def verify(self, facts: Facts) -> None:
        """Report a process that was not restarted or is not healthy."""
        if agent_daemon.is_restart_due(facts):
            raise NotConverged(
                f"the agent still runs in the process from before its restart; see `sudo launchctl print system/{launchd.AGENT}`"
            )
        if not is_healthy(self.job, facts):
            raise NotConverged(
                f"{health_problem(self.job, facts)}; {agent_daemon.describe_log(facts)}"
            )

    def _daemon(self, facts: Facts) -> LaunchDaemon:
        current = facts.file(_PLIST) or b""
        left_out = _missing_files(facts) & self.skipped_files
        files = (self.job.client_ca_file, self.job.registry_credentials_file)
        authority, credentials = ("" if path in left_out else path for path in files)
        job = replace(self.job, client_ca_file=authority, registry_credentials_file=credentials)
        return LaunchDaemon(launchd.AGENT, agent_daemon.render_plist(job, current=current))

    def _wait_started(self) -> Iterator[Command]:
        yield Wait(
            probe=health_probe(self.job),
            purpose="wait for the agent to respond",
            timeout=START_TIMEOUT,
            # `verify` reports the reason from the facts, with the end of the agent's log.
            ignore_failure=True,
        )
        yield Run(argv=("sleep", str(SETTLE_SECONDS)), purpose="check that the agent keeps running")

    def _folders(self, facts: Facts) -> Iterator[Command]:
        owner = f"{self.job.user}:staff"
        for path in _FOLDERS:
            yield from archive_install.ensure_folder(facts, path, owner=owner)
        log = facts.stat(Stat(host.AGENT_LOG))
        if log is None:
            # launchd opens it as the agent's user, who may not create files there.
            purpose = "create the agent's log"
            yield Write(path=host.AGENT_LOG, content=b"", purpose=purpose, owner=owner)
        elif log.kind == FILE and log.owner != owner:
            yield Run(
                argv=("chown", owner, host.AGENT_LOG),
                purpose="change the owner of the agent's log",
                as_root=True,
            )


def _missing_files(facts: Facts) -> set[str]:
    return {path for path in _FILES if facts.stat(Stat(path)) is None}


def health_probe(job: AgentJob) -> RunProbe:
    """Return the probe of the agent's health endpoint, which names its Node."""
    return _http_probe(job, "/healthz?verbose")


def readiness_probe(job: AgentJob) -> RunProbe:
    """Return the probe of the agent's readiness endpoint, which fails while the API server does not accept the agent."""
    return _http_probe(job, "/readyz")


def is_healthy(job: AgentJob, facts: Facts) -> bool:
    """Return whether the agent has a process and responds."""
    return not health_problem(job, facts)


def health_problem(job: AgentJob, facts: Facts) -> str:
    """Return what is wrong with the agent's process; empty if it is healthy."""
    result = facts.result(health_probe(job))
    # Older agents do not report the name of their Node.
    match = _NODE.search(result.text) if result.code == 0 else None
    if match and match[1] != job.node_name:
        return (
            f"{job.health} is served by the agent of {match[1]}, not of {job.node_name}; "
            "stop that agent, or configure other addresses for this one"
        )
    if result.code == 0 and launch_daemon.pid(facts.result(agent_daemon.AGENT_PROBE)):
        return ""
    return "the agent does not respond on this Mac"


def _http_probe(job: AgentJob, path: str) -> RunProbe:
    address, _, port = job.health.rpartition(":")
    url = f"http://{address or '127.0.0.1'}:{port}{path}"
    return RunProbe(("curl", "-f", "-s", "-S", "--max-time", "5", url))
