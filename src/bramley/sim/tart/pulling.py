"""`tart pull`: one pull per registry host at a time, staged under a name that the next try finds again.

What is kept when it is interrupted depends on how: SIGINT removes the staging, SIGKILL and SIGTERM leave it.
"""

import json
import os
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from bramley.sim.tart import bundles, disks, layout, pruning, registry
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Effect, Flock, Interrupted, Out, Sleep, Steps, Unflock
from bramley.sim.tart.failures import Failed, http_status, no_space
from bramley.sim.tart.references import Reference, find
from bramley.sim.tart.registry import Remote
from bramley.sim.tart.transfers import Transfer, Waits, ask_manifest, move
from bramley.sim.tart.world import World

RESERVE = 128 << 20
LEAST_REUSE = 1 << 30
_CHUNK_PERCENT = 5


class Wanted(NamedTuple):
    """What one pull is about: the command that pulls, the name as it was given, and how many streams."""

    on: str
    reference: Reference
    concurrency: int


def pull(arguments: Arguments, world: World) -> Steps:
    """Bring an image into the cache."""
    name = arguments["remote-name"]
    if os.path.exists(layout.vm(world.home, name)) and "/" not in name:
        yield Out(f'"{name}" is a local image, nothing to pull here!')
        return 0
    reference = find(name)
    if reference is None:
        raise Failed(1, f"failed to parse remote name: {name}")
    wanted = Wanted("pull", reference, arguments.whole("concurrency", 4))
    yield from into_cache(world, wanted)
    return 0


def into_cache(world: World, wanted: Wanted) -> Waits:
    """Pull what is not there yet, and point the tag at it."""
    reference = wanted.reference
    yield Out(f"pulling {reference}...")
    remote = yield from _manifest(world, wanted)
    target = layout.image(world.home, reference.at(remote.digest))
    if _is_linked(world, reference, target):
        yield Out(f"{target} image is already cached and linked!")
        _mark(reference, target)
        return
    host = layout.registry_host(world.home, reference.host)
    os.makedirs(host, exist_ok=True)
    is_free: bool = yield Flock(host, wait=False)
    if not is_free:
        yield Out("waiting for lock...")
        yield Flock(host, wait=True)
    if layout.is_whole(target):
        yield Out(f"{target} image is already cached! creating a symlink...")
    else:
        yield from _fetch(world, wanted, remote, target)
    _mark(reference, target)
    _link(world, reference, target)
    pruning.collect(world.home)
    yield Unflock(host)


def _manifest(world: World, wanted: Wanted) -> Generator[Effect, Any, Remote]:
    yield Out("pulling manifest...")
    yield from ask_manifest(world, wanted.on, str(wanted.reference), "pulling manifest")
    remote = registry.look_up(world, wanted.reference)
    if remote is None:
        raise http_status("pulling manifest", 404)
    registry.check_login(world, wanted.reference, remote.facts)
    return remote


def _is_linked(world: World, reference: Reference, target: str) -> bool:
    if not layout.is_whole(target):
        return False
    return os.path.realpath(layout.image(world.home, reference)) == os.path.realpath(target)


def _mark(reference: Reference, target: str) -> None:
    if reference.digest:
        with open(os.path.join(target, layout.MARKER), "wb"):
            pass


def _link(world: World, reference: Reference, target: str) -> None:
    if not reference.tag:
        return
    link = layout.image(world.home, reference)
    bundles.remove(link)
    os.symlink(target, link)


def _fetch(world: World, wanted: Wanted, remote: Remote, target: str) -> Waits:
    import hashlib

    _check(world, remote.facts)
    name = hashlib.md5(str(wanted.reference).encode(), usedforsecurity=False).hexdigest()
    staged = bundles.new_staging(world, name)
    yield Flock(staged, wait=True)
    _age_predecessor(world, wanted.reference)
    pruning.make_room(world, int(remote.facts["disk_bytes"]) + RESERVE)
    try:
        yield from _fill(world, wanted, remote, staged)
    except Interrupted:
        bundles.remove(staged)
        raise
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.rename(staged, target)


def _check(world: World, facts: Mapping[str, Any]) -> None:
    if facts["format"] == "v1" and world.settings.is_at_least("2.32"):
        raise Failed(
            1, "Error: the image uses a legacy disk media type that is no longer supported"
        )


def _age_predecessor(world: World, reference: Reference) -> None:
    previous = layout.image(world.home, reference)
    if reference.tag and layout.is_whole(previous):
        disks.change(previous, accessed=0.0)
        os.utime(previous, (0, os.stat(previous).st_mtime))


def _fill(world: World, wanted: Wanted, remote: Remote, staged: str) -> Waits:
    facts = remote.facts
    bundles.write_config(staged, bundles.new_config(world, facts))
    total = registry.compressed(facts)
    reused = yield from _reuse(world, remote)
    done = max(reused, _resumed(staged, remote))
    yield Out(f"pulling disk ({total / 1e9:.1f} GB compressed)...")

    def keep(count: int) -> None:
        share = count / max(1, total)
        # Chunk by chunk: what a cut pull has of the next one is lost.
        if round(100 * share) % _CHUNK_PERCENT == 0:
            _write_disk(world, wanted, remote, staged, share)

    transfer = Transfer(wanted.on, str(wanted.reference), total, done, wanted.concurrency)
    yield from move(world, transfer, keep, "pulling blob")
    yield Out("pulling NVRAM...")
    yield Sleep(world.settings.seconds("manifest"))
    for file, content in ((layout.NVRAM, "nvram"), (layout.MANIFEST, json.dumps(remote.manifest))):
        with open(os.path.join(staged, file), "w", encoding="utf-8") as opened:
            opened.write(content)
    bundles.touch(staged, world)


def _resumed(staged: str, remote: Remote) -> int:
    """Return the bytes that an earlier try of the same image has left."""
    try:
        content = disks.content(staged)
    except FileNotFoundError:
        return 0
    return int(content.get("fetched", 0)) if content.get("digest") == remote.digest else 0


def _reuse(world: World, remote: Remote) -> Generator[Effect, Any, int]:
    """Return the bytes that the most similar cached image spares us."""
    wanted = registry.parts_of(remote.manifest)
    best, best_bytes = "", 0
    for row in layout.cached(world.home):
        try:
            with open(os.path.join(row.folder, layout.MANIFEST), encoding="utf-8") as file:
                have = registry.parts_of(json.load(file))
        except FileNotFoundError:
            continue
        same = sum(size for digest, size in wanted.items() if digest in have)
        if same > best_bytes:
            best, best_bytes = row.name, same
    if best_bytes <= LEAST_REUSE or not world.settings.is_at_least("2.11"):
        return 0
    yield Out(f"found an image {best} that will allow us to skip {best_bytes / 1e9:.1f} GB")
    return best_bytes


def _write_disk(world: World, wanted: Wanted, remote: Remote, staged: str, share: float) -> None:
    size = int(remote.facts["size_bytes"] * share)
    fault = world.fault(wanted.on, str(wanted.reference), "no_space") if share else None
    before = disks.blocks(staged)
    if fault or size - sum(before.values()) > pruning.free(world):
        raise no_space(disks.FILE)
    # Pulled again, it has other blocks than the clones of its first time have.
    (place,) = before or {world.around.entropy(8).hex()}
    content = {
        "image": str(wanted.reference),
        "digest": remote.digest,
        "blocks": {place: size},
        "fetched": int(registry.compressed(remote.facts) * share),
        "facts": dict(remote.facts),
        "boots": 0,
    }
    disks.write(staged, content, virtual=int(remote.facts["disk_bytes"]))
