"""Restart a Mac and see that it is another boot which answers afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.host import boots
from bramley.host.commands import Reboot, Run
from bramley.host.connection import Connection

_RESTART = ("shutdown", "-r", "now")
_EVERY = timedelta(seconds=2)


async def reboot(
    mac: Connection,
    command: Reboot,
    *,
    clock: Clock,
    hang_up: Callable[[], Awaitable[None]],
    sends_password: bool,
) -> None:
    """Restart a Mac and wait until it is back; TimedOut with the last reason if it is not in time."""
    before = await _boot(mac)
    if not before:
        raise errors.CommandFailed(
            f"{mac.host}: {command.purpose}: this Mac does not tell one boot from another"
        )
    await _restart(mac, command)
    await hang_up()
    until = clock.monotonic() + command.within.total_seconds()
    reason = "it has not gone down"
    # A Mac that has just started may not know its users' keys yet; a password is sent once, since Macs lock accounts.
    passing = errors.Unavailable if sends_password else (errors.Unavailable, errors.LoginRefused)
    while clock.monotonic() < until:
        await asyncio.sleep(_EVERY.total_seconds())
        try:
            if await _boot(mac) not in {"", before}:
                return
        except passing as error:
            reason = str(error).removeprefix(f"{mac.host}: ")
    raise errors.TimedOut(
        f"{mac.host}: {command.purpose}: not back within {command.within.total_seconds():g} s; at last: {reason}"
    )


async def _boot(mac: Connection) -> str:
    return boots.name(await mac.look([boots.BOOT]))


async def _restart(mac: Connection, command: Reboot) -> None:
    try:
        await mac.do(Run(argv=_RESTART, purpose=command.purpose, as_root=True))
    except (errors.HostUnreachable, errors.TimedOut):
        # The line goes down with the Mac, or before the answer: whether it did is seen by the boot.
        return
