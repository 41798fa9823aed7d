"""Bytes on their way between a Mac and the registry: how fast, what is printed, and what goes wrong.

Network faults are tried again up to five times; what the registry refuses with a status is not.
"""

import os
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from bramley.sim.tart.effects import Effect, Flock, IsFlocked, Out, Sleep, Unflock
from bramley.sim.tart.failures import connection_lost, http_status
from bramley.sim.tart.settings import Fault
from bramley.sim.tart.world import World

TRIES = 5
_REDRAW = "\033[1A\033[J"


class Transfer(NamedTuple):
    """One disk's way: the command and target by which faults find it, and bytes done already."""

    on: str
    target: str
    total: int
    done: int
    concurrency: int


Waits = Generator[Effect, Any, None]


def ask_manifest(world: World, on: str, target: str, when: str) -> Waits:
    """Wait for the registry's first answer, or its refusal."""
    yield Sleep(world.settings.seconds("manifest"))
    for fault in world.settings.faults:
        if fault.do == "status" and fault.percent == 0 and world.strikes(fault, on, target):
            raise http_status(when, fault.code)


def move(world: World, transfer: Transfer, on_bytes: Callable[[int], None], when: str) -> Waits:
    """Move the bytes and print each percent; `on_bytes` hears how many are done, and may refuse with a failure."""
    place = yield from _join_the_crowd(world)
    rates = _rates(world, transfer)
    printed = -1.0
    done = transfer.done
    for percent in range(100 * done // max(1, transfer.total), 101):
        until = transfer.total * percent // 100
        crowd = yield from _crowd(world, place)
        seconds = max(0, until - done) / min(rates[0] / crowd, rates[1]) * world.settings.scale
        yield Sleep(seconds)
        yield from _strike(world, transfer, when, percent)
        done = until
        on_bytes(done)
        now = world.around.now()
        if percent in {0, 100} or now - printed >= 1 or not world.is_plain:
            yield Out(f"{percent}%" if world.is_plain or printed < 0 else f"{_REDRAW}{percent}%")
            printed = now
    if place:
        yield Unflock(place)
        os.unlink(place)


def _rates(world: World, transfer: Transfer) -> tuple[float, float]:
    """Return the bytes per second that the uplink and that so many streams can carry."""
    kind = "push_" if transfer.on == "push" else ""
    timings = world.settings.timings
    stream = timings[f"{kind}stream_bytes_per_second"] * max(1, transfer.concurrency)
    return timings[f"{kind}bytes_per_second"], stream


def _strike(world: World, transfer: Transfer, when: str, percent: int) -> Waits:
    for fault in world.settings.faults:
        if fault.percent != percent or fault.do not in {"stall", "status", "reset"}:
            continue
        if fault.do == "reset":
            yield from _try_again(world, transfer, fault)
        elif percent or fault.do == "stall":
            if not world.strikes(fault, transfer.on, transfer.target):
                continue
            if fault.do == "status":
                raise http_status(when, fault.code)
            yield Sleep(float("inf"))


def _try_again(world: World, transfer: Transfer, fault: Fault) -> Waits:
    for tried in range(TRIES):
        if not world.strikes(fault, transfer.on, transfer.target):
            return
        if tried < TRIES - 1:
            yield Out("network error, trying again")
            yield Sleep(1.0 * world.settings.scale)
    raise connection_lost()


def _join_the_crowd(world: World) -> Generator[Effect, Any, str]:
    """Be counted among the pulls that share the site's uplink; the count ends with our process."""
    if world.settings.site is None:
        return ""
    os.makedirs(world.settings.site, exist_ok=True)
    place = os.path.join(world.settings.site, world.around.entropy(8).hex())
    with open(place, "wb"):
        pass
    yield Flock(place, wait=True)
    return place


def _crowd(world: World, place: str) -> Generator[Effect, Any, int]:
    if world.settings.site is None:
        return 1
    crowd = 1
    for entry in os.listdir(world.settings.site):
        other = os.path.join(world.settings.site, entry)
        if other == place:
            continue
        is_busy: bool = yield IsFlocked(other)
        crowd += is_busy
    return crowd
