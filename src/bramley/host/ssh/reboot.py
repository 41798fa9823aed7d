"""The reboot of a Mac, and the wait until it responds again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.host import shared_probes
from bramley.host.claim import Guard
from bramley.host.commands import Reboot, Run
from bramley.host.connection import Batch, Connection

_REBOOT_ARGV = ("shutdown", "-r", "now")
_REBOOT_POLL_INTERVAL = timedelta(seconds=2)


async def reboot(
    mac: Connection,
    command: Reboot,
    *,
    clock: Clock,
    disconnect: Callable[[], Awaitable[None]],
    sends_password: bool,
    guard: Guard | None = None,
) -> None:
    """Reboot a Mac and wait until it responds with a new boot session; TimedOut with the last reason if it does not in time."""
    before = await _boot_session(mac)
    if not before:
        raise errors.CommandFailed(
            f"{mac.host}: {command.purpose}: the boot session of this Mac is unknown"
        )
    # The connection ends with the Mac, possibly before the response; the boot session shows whether it rebooted.
    with suppress(errors.HostUnreachable, errors.TimedOut):
        shutdown = Run(argv=_REBOOT_ARGV, purpose=command.purpose, as_root=True)
        await mac.execute_all(Batch(commands=(shutdown,), guard=guard))
    # A connection to a Mac that went down does not fail until its keepalives do.
    await disconnect()
    end = clock.monotonic() + command.timeout.total_seconds()
    reason = "it has not gone down"
    # A Mac that has just booted may not know its users' keys yet. A password is sent only once, because Macs lock accounts.
    transient = errors.Unavailable if sends_password else (errors.Unavailable, errors.LoginRefused)
    while clock.monotonic() < end:
        await asyncio.sleep(_REBOOT_POLL_INTERVAL.total_seconds())
        try:
            # The Mac may answer again before it goes down.
            if await _boot_session(mac) not in {"", before}:
                return
        except transient as error:
            reason = str(error).removeprefix(f"{mac.host}: ")
    raise errors.TimedOut(
        f"{mac.host}: {command.purpose}: not back within {command.timeout.total_seconds():g} s; last error: {reason}"
    )


async def _boot_session(mac: Connection) -> str:
    return shared_probes.boot_session(await mac.probe([shared_probes.BOOT_SESSION]))
