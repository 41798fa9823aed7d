"""What a Pod's VM shares with its host: variables and token for the guest, and what the guest reports.

Each method may be repeated. The variables are a file of `KEY=value` lines in the format of older guests, made reversible: a newline
is written as backslash and n, a carriage return as backslash and r. Backslashes directly before a line end, or before a letter n or r,
are doubled; all others are kept, because older guests do not know doubled ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from bramley.agent import pod_fields
from bramley.agent.guest import environment, report
from bramley.agent.guest.environment import NodeFacts, ObjectReader
from bramley.agent.guest.folders import Shares, UserData
from bramley.agent.guest.report import Report
from bramley.agent.guest.tokens import Tokens
from bramley.api.pod import Pod

_AMBIGUOUS = re.compile(r"(\\*)([\n\r])|(\\+)(?=[nr])")
_LETTERS = {"\n": "n", "\r": "r"}


def render_env_file(values: Mapping[str, str]) -> str:
    """Return the file's content, sorted, so that the same variables always give the same content."""
    return "".join(f"{name}={escape(values[name])}\n" for name in sorted(values))


def escape(value: str) -> str:
    """Return a value on one line."""
    return _AMBIGUOUS.sub(_escape_match, value)


def _escape_match(match: re.Match[str]) -> str:
    backslashes, line_end, before_letter = match.groups()
    return before_letter * 2 if before_letter else f"{backslashes * 2}\\{_LETTERS[line_end]}"


@dataclass(frozen=True, slots=True)
class Guests:
    """The guests of this host; their logs are copied to `logs` before their folders are removed."""

    kube: ObjectReader
    folders: UserData
    tokens: Tokens
    _: KW_ONLY
    node_facts: NodeFacts
    logs: Path | None = None

    async def prepare(self, pod: Pod, vm: str) -> Shares:
        """Write the variables and, if its Pod requests one, the token; Unresolved if a variable has no value yet."""
        values = await environment.resolve(pod, self.kube, self.node_facts)
        # Only after all variables are resolved, so that a Pod that waits for a Secret leaves no folders.
        shares = self.folders.prepare(vm)
        self.folders.write_environment(vm, render_env_file(values))
        if pod_fields.needs_token(pod):
            await self.tokens.issue(pod, vm)
        return shares

    def renew_token(self, pod: Pod, vm: str) -> None:
        """Renew the token of a running VM from now on, whichever agent started it."""
        if pod_fields.needs_token(pod):
            self.tokens.track(pod, vm)

    async def write_address(self, pod: Pod, vm: str) -> None:
        """Write the variables again if one of them is the VM's address, which is now in the Pod's status."""
        if not environment.awaits_address(pod):
            return
        values = await environment.resolve(pod, self.kube, self.node_facts)
        self.folders.write_environment(vm, render_env_file(values))

    def report(self, vm: str) -> Report:
        """Return the exit that the guest reported."""
        return report.read(self.folders, vm)

    def log_output(self, vm: str) -> None:
        """Copy the last lines of the guest's log to the agent's log."""
        report.log_output(self.folders, vm)

    async def remove(self, vm: str) -> None:
        """Remove everything that host and guest shared, and what could not be removed of earlier guests."""
        # First, so that no renewal writes a token into a folder that is being removed.
        self.tokens.forget(vm)
        if self.logs is not None:
            # Before the folders are removed, which contain the only copy.
            report.copy_log(self.folders, vm, self.logs)
        await self.folders.remove(vm)
        await self.folders.sweep()
