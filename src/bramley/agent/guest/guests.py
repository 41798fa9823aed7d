"""Everything between a Pod and the folders of its VM, as the Pod's life asks for it: prepare, keep, tell, forget.

Each act may be repeated. What the guest is given is written before its VM runs; what it left is read before its folders go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bramley.agent.guest import environment, report
from bramley.agent.guest.environment import Place, Reads
from bramley.agent.guest.folders import Shares, UserData
from bramley.agent.guest.report import Report
from bramley.agent.guest.tokens import Tokens
from bramley.agent.pods import fields
from bramley.api.pod import Pod

_AMBIGUOUS = re.compile(r"(\\*)([\n\r])|(\\+)(?=[nr])")
_ESCAPED = re.compile(r"(\\+)([nr])")
_LETTERS = {"\n": "n", "\r": "r"}
_BREAKS = {"n": "\n", "r": "\r"}


def render_env_file(values: Mapping[str, str]) -> str:
    """Return the file, sorted, so that the same variables always give the same file."""
    return "".join(f"{name}={escape(values[name])}\n" for name in sorted(values))


def parse_env_file(text: str) -> dict[str, str]:
    """Read such a file, as a guest does: blank lines and comments say nothing."""
    # Other marks that Python takes for the end of a line may stand in a value.
    lines = (line for line in text.split("\n") if line and not line.startswith("#"))
    pairs = (line.partition("=") for line in lines)
    return {name: unescape(value) for name, _, value in pairs}


def escape(value: str) -> str:
    """Return a value on one line."""
    return _AMBIGUOUS.sub(_doubled, value)


def unescape(value: str) -> str:
    """Return the value that `escape` put on one line."""
    return _ESCAPED.sub(_halved, value)


def _doubled(found: re.Match[str]) -> str:
    before, end, only = found.groups()
    return only * 2 if only else f"{before * 2}\\{_LETTERS[end]}"


def _halved(found: re.Match[str]) -> str:
    backslashes, letter = found.groups()
    kept = "\\" * (len(backslashes) // 2)
    return f"{kept}{_BREAKS[letter] if len(backslashes) % 2 else letter}"


class Guests:
    """The guests of this host."""

    def __init__(
        self,
        kube: Reads,
        folders: UserData,
        tokens: Tokens,
        *,
        place: Place,
        logs: Path | None = None,
    ) -> None:
        """Work in these folders; `logs` is where the logs of guests are kept when their folders go."""
        self._kube = kube
        self._folders = folders
        self._tokens = tokens
        self._place = place
        self._logs = logs

    async def prepare(self, pod: Pod, vm: str) -> Shares:
        """Give a guest its variables and, if its Pod wants one, a token; Unresolved when something is not to be had yet."""
        values = await environment.resolve(pod, self._kube, self._place)
        shares = self._folders.prepare(vm)
        self._folders.write_environment(vm, render_env_file(values))
        if fields.wants_token(pod):
            await self._tokens.give(pod, vm)
        return shares

    def keep(self, pod: Pod, vm: str) -> None:
        """Keep the token of a running VM fresh, whoever started it."""
        if fields.wants_token(pod):
            self._tokens.keep(pod, vm)

    async def tell_address(self, pod: Pod, vm: str) -> None:
        """Write the variables again if one of them is the VM's address, which the Pod's status now holds."""
        if not environment.awaits_address(pod):
            return
        values = await environment.resolve(pod, self._kube, self._place)
        self._folders.write_environment(vm, render_env_file(values))

    def report(self, vm: str) -> Report:
        """Return what the guest reported of its end."""
        return report.read(self._folders, vm)

    def tell_log(self, vm: str) -> None:
        """Put the last lines of the guest's log into ours, as one record."""
        report.tell_log(self._folders, vm)

    async def forget(self, vm: str) -> None:
        """Remove everything that host and guest shared, and what earlier guests would not let go; done if there is nothing."""
        self._tokens.forget(vm)
        if self._logs is not None:
            report.keep_log(self._folders, vm, self._logs)
        await self._folders.remove(vm)
        await self._folders.sweep()
