"""Apple's limit: two macOS guests per Mac, counted by the framework and not by tart.

A slot is a file whose `flock` the guest's process holds, so it is free when that process is gone, whatever became of tart. A
leaked slot of the settings has no process at all; it goes with a reboot.
"""

import json
import os
from collections.abc import Generator
from typing import Any

from bramley.sim.tart import layout
from bramley.sim.tart.effects import Effect, Flock, IsFlocked, RunHolder, Unflock
from bramley.sim.tart.failures import Failed, virtualization
from bramley.sim.tart.world import World

DEAD_SESSION = "no-session"


def has_session(world: World) -> bool:
    """Tell whether somebody is logged in at the screen; the file lets another program end and renew the session."""
    is_dead = os.path.exists(os.path.join(world.hidden, DEAD_SESSION))
    return bool(world.settings.host["has_session"]) and not is_dead


def folder(world: World) -> str:
    """Return the folder of slots in use."""
    return os.path.join(world.hidden, "slots")


def take(world: World, name: str, *, is_macos: bool) -> Generator[Effect, Any, str]:
    """Return a slot that we hold, for the guest to take over; a third macOS guest is refused."""
    place = folder(world)
    os.makedirs(place, exist_ok=True)
    # Two processes must not count at the same time.
    yield Flock(place, wait=True)
    used = yield from _used(world)
    allowed = int(world.settings.host["macos_guests"])
    if is_macos and used + int(world.settings.host["leaked_slots"]) >= allowed:
        raise (yield from limit(world))
    slot = os.path.join(place, world.around.entropy(8).hex())
    with open(slot, "w", encoding="utf-8") as file:
        json.dump({"vm": name, "is_macos": is_macos}, file)
    yield Flock(slot, wait=True)
    yield Unflock(place)
    return slot


def _used(world: World) -> Generator[Effect, Any, int]:
    used = 0
    for entry in os.listdir(folder(world)):
        slot = os.path.join(folder(world), entry)
        is_held: bool = yield IsFlocked(slot)
        if not is_held:
            os.unlink(slot)
            continue
        with open(slot, encoding="utf-8") as file:
            used += bool(json.load(file)["is_macos"])
    return used


def limit(world: World) -> Generator[Effect, Any, Failed]:
    """Return the refusal of a third VM; it names those that tart can see, which a leaked one is not."""
    if not world.settings.is_at_least("2.18.1"):
        return virtualization(
            6, "The maximum supported number of active virtual machines has been reached."
        )
    seen = []
    for other in layout.names(world.home):
        config = os.path.join(layout.vm(world.home, other), layout.CONFIG)
        holder: int | None = yield RunHolder(config)
        if holder is not None:
            seen.append(other)
    hint = f" (other running VMs: {', '.join(seen)})" if seen else ""
    return Failed(1, f"The number of VMs exceeds the system limit{hint}")
