"""The volume's free space, tart's automatic pruning, `tart prune`, and the garbage collection of untagged images.

Automatic pruning deletes nothing unless the whole cache would be enough, never deletes local VMs, and takes no locks.
"""

import os
from collections.abc import Generator
from typing import Any

from bramley.sim.tart import bundles, layout
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Effect, RunHolder, Steps
from bramley.sim.tart.failures import WrongUsage
from bramley.sim.tart.settings import Context

GIB = 1 << 30
DAY = 86400


def free_bytes(context: Context) -> int:
    """Return the free bytes of the volume, simulated or real."""
    total = context.settings.host["disk_bytes"]
    if total is None:
        volume = os.statvfs(context.home)
        return volume.f_bavail * volume.f_frsize
    return max(0, int(total) - int(context.settings.host["other_bytes"]) - used_bytes(context.home))


def used_bytes(home: str) -> int:
    """Return the bytes of all disks under TART_HOME, staged ones included; shared blocks count once."""
    distinct: dict[str, int] = {}
    for bundle in _bundles(home):
        distinct |= bundles.disk_blocks(bundle)
    return sum(distinct.values())


def _bundles(home: str) -> list[str]:
    """Return every folder that may contain a disk: cached images, VMs, staging, and what other programs have moved elsewhere."""
    folders = [row.folder for row in layout.cached(home) if not row.is_tag]
    for entry in os.listdir(home):
        folder = os.path.join(home, entry)
        if entry not in {"cache", ".sim"} and os.path.isdir(folder):
            folders += [os.path.join(folder, inner) for inner in os.listdir(folder)]
    return folders


def make_room(context: Context, need: int, *, keep: str = "") -> None:
    """Prune before a pull or a clone, as tart does automatically."""
    if "TART_NO_AUTO_PRUNE" in context.environment:
        return
    available = free_bytes(context)
    if available == 0 or need < available:
        return
    candidates = [bundle for bundle in _oldest_first(_digests(context.home)) if bundle != keep]
    missing = need - available
    if sum(bundles.allocated_size(bundle) for bundle in candidates) < missing:
        return
    for bundle in candidates:
        if missing <= 0:
            break
        missing -= bundles.allocated_size(bundle)
        bundles.remove(bundle)
    collect(context.home)


def _digests(home: str) -> list[str]:
    return [os.path.realpath(row.folder) for row in layout.cached(home) if not row.is_tag]


def _oldest_first(folders: list[str]) -> list[str]:
    return sorted(folders, key=bundles.accessed)


def collect(home: str) -> int:
    """Remove dangling tags, and digests with neither a tag nor the mark of an explicit pull; return how many digests."""
    tagged, removed = set(), 0
    for link in list(layout.links(home)):
        if layout.is_complete(link):
            tagged.add(os.path.realpath(link))
        else:
            bundles.remove(link)
    for bundle in _digests(home):
        if bundle not in tagged and not os.path.exists(os.path.join(bundle, layout.MARKER)):
            bundles.remove(bundle)
            removed += 1
    return removed


def prune(arguments: Arguments, context: Context) -> Steps:
    """Delete by age, or until the rest is within a budget."""
    older, budget = arguments.integer("older-than"), arguments.integer("space-budget")
    if budget is None:  # by its old name
        budget = arguments.integer("cache-budget")
    if older is None and budget is None and not arguments.has("gc"):
        raise WrongUsage("at least one criteria must be specified")
    if arguments.has("gc"):
        collect(context.home)
    if (arguments.find("entries") or "caches") == "vms":
        candidates = yield from _idle_vms(context)
    else:
        candidates = _digests(context.home)
    for bundle in _surplus(candidates, context, older=older, budget=budget):
        bundles.remove(bundle)
    collect(context.home)
    return 0


def _idle_vms(context: Context) -> Generator[Effect, Any, list[str]]:
    idle = []
    for name in layout.names(context.home):
        bundle = layout.vm(context.home, name)
        holder: int | None = yield RunHolder(os.path.join(bundle, layout.CONFIG))
        if holder is None:
            idle.append(bundle)
    return idle


def _surplus(
    candidates: list[str], context: Context, *, older: int | None, budget: int | None
) -> list[str]:
    surplus = []
    budget_left = None if budget is None else budget * GIB
    for bundle in reversed(_oldest_first(candidates)):
        age = context.now() - bundles.accessed(bundle)
        if older is not None and age > older * DAY:
            surplus.append(bundle)
        elif budget_left is not None:
            budget_left -= bundles.allocated_size(bundle)
            if budget_left < 0:
                surplus.append(bundle)
    return surplus
