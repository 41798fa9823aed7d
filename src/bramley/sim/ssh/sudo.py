"""sudo behind SSH: the model decides, and the program runs as the other user with the caller's standard files.

The shim has no permissions; it passes its files and waits. If it is killed, the program is terminated.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bramley.sim.macos import users
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import sudo, sudoers
from bramley.sim.ssh import processes
from bramley.sim.ssh.faults import FaultKind, Faults
from bramley.sim.ssh.processes import Processes, ProcessSpec

if TYPE_CHECKING:
    from bramley.sim.ssh.shim_server import ShimCall, ShimConnection

# Variables that env_reset keeps; HOME only on macOS.
_KEPT = ("HOME", "LANG", "LC_ALL", "PATH", "SSH_CONNECTION", "TERM", "TZ")
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Sudo:
    """sudo of one Mac."""

    mac: Mac
    faults: Faults
    processes: Processes

    async def run(self, connection: ShimConnection, shim_call: ShimCall, user: str) -> Result:
        """Run a program as another user if that is allowed, and return its result."""
        if self.faults.take(FaultKind.REFUSE_SUDO, " ".join(shim_call.argv)):
            return Result(1, err=f"{user} is not in the sudoers file.\n")
        decision = await self._decide(connection, shim_call, user)
        if isinstance(decision, Result):
            return decision
        try:
            return Result(await self._run(connection, shim_call, decision, user))
        except FileNotFoundError:
            return Result(1, err=f"sudo: {decision.argv[0]}: command not found\n")
        except OSError as error:
            return Result(1, err=f"sudo: unable to execute {decision.argv[0]}: {error.strerror}\n")

    async def _decide(
        self, connection: ShimConnection, shim_call: ShimCall, user: str
    ) -> sudo.Granted | Result:
        call = Call(shim_call.argv, user, on_terminal=shim_call.on_terminal)
        request = sudo.parse(shim_call.argv[1:])
        rules = sudoers.rules_for(self.mac, user)
        needs_password = not call.is_root and rules.may and not rules.without_password
        can_read = request is not None and (request.reads_stdin or shim_call.on_terminal)
        if request is None or not needs_password or request.is_silent or not can_read:
            return sudo.decide(self.mac, call)
        return await self._authenticate(connection, call, request.prompt)

    async def _authenticate(
        self, connection: ShimConnection, call: Call, prompt: str
    ) -> sudo.Granted | Result:
        """Read the password, one line at a time: what follows it on a pipe is the program's."""
        before = ""
        for wrong in range(sudo.TRIES):
            line = await connection.read_line(prompt, before=before)
            if not line:
                counted = f"sudo: {wrong} incorrect password attempts\n" if wrong else ""
                return Result(1, err=f"\nsudo: no password was provided\n{counted}")
            attempt = Call(call.argv, call.user, line, on_terminal=call.on_terminal)
            decision = sudo.decide(self.mac, attempt)
            if isinstance(decision, sudo.Granted) or decision.code == 0:
                return decision
            before = "Sorry, try again.\n"
        return Result(1, err=f"sudo: {sudo.TRIES} incorrect password attempts\n")

    async def _run(
        self, connection: ShimConnection, shim_call: ShimCall, granted: sudo.Granted, user: str
    ) -> int:
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        start = ProcessSpec(
            argv=granted.argv,
            user=processes.identity_of(self.mac.state, granted.user),
            files=shim_call.files,
            environment=_environment(self.mac, shim_call, granted, user),
            folder=shim_call.folder,
            largest_file=shim_call.largest_file,
        )
        pid = self.processes.start(start, functools.partial(_set_result, ended))
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(self._terminate_with_caller(connection, pid, ended))
            code = await ended
            watcher.cancel()
        return code if code >= 0 else _SIGNALLED - code

    async def _terminate_with_caller(
        self, connection: ShimConnection, pid: int, ended: asyncio.Future[int]
    ) -> None:
        """Terminate the program when the shim is gone."""
        await connection.wait_closed()
        with contextlib.suppress(OSError):
            self.processes.signal(pid, signal.SIGTERM, group=True)
        _set_result(ended, -signal.SIGTERM)


def _set_result(ended: asyncio.Future[int], code: int) -> None:
    if not ended.done():
        ended.set_result(code)


def _environment(mac: Mac, shim_call: ShimCall, granted: sudo.Granted, user: str) -> dict[str, str]:
    """Return the environment of the program: some variables of the caller, or all with -E."""
    options = shim_call.argv[1 : len(shim_call.argv) - len(granted.argv)]
    keeps_all = any(re.fullmatch(r"-[nSHk]*E[nSHk]*", word) for word in options)
    inherited: Mapping[str, str] = shim_call.environment
    kept = {key: inherited[key] for key in inherited if keeps_all or key in _KEPT}
    uid = users.uid_of(mac.state, user)
    name = granted.user
    identity = {"USER": name, "LOGNAME": name, "SUDO_USER": user, "SUDO_UID": str(uid)}
    if any(re.fullmatch(r"-[nSEk]*H[nSEk]*", word) for word in options):
        identity["HOME"] = users.home_of(mac.state, name)
    assignments = {
        word.partition("=")[0]: word.partition("=")[2] for word in options if _SETTING.match(word)
    }
    return {**kept, **identity, **assignments}
