"""The small programs of a simulated Mac: `sudo`, `df`, `tailscale`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bramley.agent.host import Space
from bramley.sim.mac.calls import Call, Program
from bramley.sim.mac.processes import Process

_MISSING = 1


def sudo(find: Callable[[str], Program | None]) -> Program:
    """Return a sudo that asks for no password and runs other programs as root, in its own process."""

    async def run(process: Process, call: Call) -> int:
        rest = [word for word in call.argv[1:] if word != "-n"]
        program = find(rest[0]) if rest else None
        if program is None:
            call.err(f"sudo: {' '.join(rest[:1])}: command not found")
            return _MISSING
        return await program(process, replace(call, argv=rest, as_root=True))

    return run


def df(space: Callable[[], Space]) -> Program:
    """Return a df that knows one volume, and prints it as Darwin does, inodes included."""

    async def run(_: Process, call: Call) -> int:
        room = space()
        total, free = room.total // 1024, room.free // 1024
        percent = round(100 * (1 - room.free_share))
        call.out("Filesystem 1024-blocks Used Available Capacity iused ifree %iused Mounted on")
        call.out(f"/dev/disk3s1s1 {total} {total - free} {free} {percent}% 404167 4294563112 0% /")
        return 0

    return run


def tailscale(address: Callable[[], str | None]) -> Program:
    """Return a tailscale that tells this Mac's address in the tailnet, if it has one."""

    async def run(_: Process, call: Call) -> int:
        found = address()
        if found is None:
            call.err("no current Tailscale IPs; state: Stopped")
            return 1
        call.out(found)
        return 0

    return run
