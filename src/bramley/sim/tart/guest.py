"""A guest: it gets an address, its agent answers, its script waits, works, reports into the status share and ends.

It runs in a process of its own, or as a generator beside its tart. Whoever writes its script may make it hostile: it can leave
links and pipes where the host expects files.
"""

import os
from collections.abc import Generator, Mapping
from typing import Any

from bramley.api.names import guest as names
from bramley.sim.tart import agent, disks, layout, leases, scripts, world
from bramley.sim.tart.effects import (
    CRASHED,
    DISCONNECTED,
    HALTED,
    Effect,
    Listen,
    Plan,
    Reply,
    Sleep,
    Steps,
    Surroundings,
)

TERMINATED = 143
FOREVER = float("inf")
_ENDS: Mapping[str, int] = {"halt": HALTED, "crash": CRASHED, "disconnect": DISCONNECTED}

Waits = Generator[Effect, Any, None]


class ShutDown(Exception):
    """Somebody in the guest asked for a shutdown."""


class Guest:
    """The state of one guest from power on."""

    def __init__(self, plan: Plan, view: world.World) -> None:
        self.plan = plan
        self.world = view
        self.bundle = layout.vm(view.home, plan.vm)
        self.began = view.around.now()
        disk = disks.content(self.bundle)
        self.script = scripts.of_vm(view, plan, disk)
        self.variables: dict[str, str] = {}
        self.address: str | None = None
        self.works = False
        disks.change(self.bundle, boots=int(disk.get("boots", 0)) + 1)

    def moment(self, stage: str) -> float:
        """Return when a stage of booting is reached."""
        seconds = self.script[stage]
        scale = self.world.settings.scale
        after = self.world.settings.timings[stage] if seconds is None else seconds
        return self.began + after * scale

    def lasts(self, field: str) -> float:
        """Return how long a part of the script takes."""
        seconds = self.script[field]
        if seconds is None:
            return self.world.settings.seconds(field)
        return float(seconds) * self.world.settings.scale

    def until(self, moment: float) -> Waits:
        """Pass the time, answering those who ask once the agent is up."""
        while (left := moment - self.world.around.now()) > 0:
            deaf = self._answers_from() - self.world.around.now()
            if deaf > 0:
                yield Sleep(min(left, deaf))
                continue
            request = yield Listen(min(left, self._silence_in()))
            if request is not None:
                answer = agent.answer(self.script, request, self.address, self.plan)
                yield Reply(request, answer)
                if agent.is_shutdown(request.argv) and not self.script["ignores_shutdown"]:
                    raise ShutDown

    def _answers_from(self) -> float:
        """Return the moment from which on the agent answers; it may have passed."""
        up = self.moment("agent") if self.script["has_agent"] else FOREVER
        begins, ends = self._silence()
        return max(up, ends) if begins <= self.world.around.now() else up

    def _silence_in(self) -> float:
        left = self._silence()[0] - self.world.around.now()
        return left if left > 0 else FOREVER

    def _silence(self) -> tuple[float, float]:
        """Return when the agent falls silent, and when it is heard again."""
        after, lasts = self.script["falls_silent"], self.script["silent_for"]
        if after is None:
            return FOREVER, FOREVER
        begins = self.began + after * self.world.settings.scale
        return begins, FOREVER if lasts is None else begins + self.lasts("silent_for")

    def pause(self, seconds: float) -> Waits:
        """Pass some time."""
        yield from self.until(self.world.around.now() + seconds)


def live(plan: Plan, around: Surroundings) -> Steps:
    """Live from power on to the end."""
    guest = Guest(plan, world.here(around))
    try:
        yield from _boot(guest)
        yield from _work(guest)
    except ShutDown:
        if guest.works:
            _report(guest, TERMINATED)
        yield Sleep(guest.lasts("halt"))
        return HALTED
    if guest.script["then"] == "halt":
        yield Sleep(guest.lasts("halt"))
    return _ENDS[guest.script["then"]]


def _boot(guest: Guest) -> Waits:
    yield from guest.until(guest.moment("address"))
    if guest.script["has_address"]:
        guest.address = yield from leases.grant(guest.world, guest.plan.mac)
    yield from guest.until(guest.moment("ready"))
    # The runner starts only now, so it sees what the host wrote meanwhile.
    guest.variables = scripts.environment(guest.plan)
    guest.script = scripts.told_by(guest.script, guest.variables)


def _work(guest: Guest) -> Waits:
    yield from guest.pause(guest.lasts("wait"))
    guest.works = True
    lines = guest.script["lines"]
    for line in lines:
        _write(guest, names.LOG_FILE, _filled(line, guest) + "\n", mode="a")
        yield from guest.pause(guest.lasts("work") / len(lines))
    if not lines:
        yield from guest.pause(guest.lasts("work"))
    _grow(guest)
    if guest.script["code"] is not None:
        _report(guest, guest.script["code"])
    guest.works = False
    if guest.script["then"] == "stay":
        yield from guest.until(FOREVER)


def _filled(line: str, guest: Guest) -> str:
    """Fill `{NAME}` from the environment of the guest."""
    for name, value in {"HOSTNAME": guest.plan.vm, **guest.variables}.items():
        line = line.replace(f"{{{name}}}", value)
    return line


def _grow(guest: Guest) -> None:
    more = int(guest.script["writes_bytes"])
    if more:
        written = {guest.world.around.entropy(8).hex(): more}
        disks.change(guest.bundle, blocks=disks.blocks(guest.bundle) | written)


def _report(guest: Guest, code: int) -> None:
    _write(guest, names.EXIT_CODE_FILE, f"{code}\n")
    for file, kind in guest.script["plants"].items():
        _plant(guest, file, kind)


def _status_share(guest: Guest) -> str | None:
    share = guest.plan.shares.get(names.STATUS_SHARE)
    return None if share is None or share["read_only"] else str(share["path"])


def _write(guest: Guest, file: str, text: str, *, mode: str = "w") -> None:
    folder = _status_share(guest)
    if folder is None or not os.path.isdir(folder):
        return
    with open(os.path.join(folder, file), mode, encoding="utf-8") as opened:
        opened.write(text)


def _plant(guest: Guest, file: str, kind: str) -> None:
    folder = _status_share(guest)
    if folder is None:
        return
    path = os.path.join(folder, file)
    if os.path.lexists(path):
        os.unlink(path)
    what, _, detail = kind.partition(":")
    if what == "link":
        os.symlink(detail, path)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        os.mkdir(path)
    else:
        with open(path, "wb") as opened:
            opened.write(b"x" * int(detail))
