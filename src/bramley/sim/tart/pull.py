"""`tart pull`: one pull per registry host at a time, staged under a name that the next try finds again.

What is kept when it is interrupted depends on how: SIGINT removes the staging, SIGKILL and SIGTERM leave it.
"""

import json
import os
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from bramley.sim.tart import bundles, layout, prune, registry
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import (
    Effect,
    Flock,
    Interrupted,
    IsFlocked,
    Out,
    Sleep,
    Steps,
    Substeps,
    Unflock,
)
from bramley.sim.tart.failures import Failed, connection_lost, http_status, no_space
from bramley.sim.tart.layout import Reference, find_reference
from bramley.sim.tart.registry import Remote
from bramley.sim.tart.settings import Context, Fault

TRIES = 5
_REDRAW = "\033[1A\033[J"


class Transfer(NamedTuple):
    """One disk's way: the command and target by which faults find it, and bytes done already."""

    on: str
    target: str
    total: int
    done: int
    concurrency: int


def ask_manifest(context: Context, on: str, target: str, when: str) -> Substeps:
    """Wait for the registry's first answer, or its refusal."""
    yield Sleep(context.settings.seconds("manifest"))
    for fault in context.settings.faults:
        if fault.do == "status" and fault.percent == 0 and context.strikes(fault, on, target):
            raise http_status(when, fault.code)


def move(
    context: Context, transfer: Transfer, on_bytes: Callable[[int], None], when: str
) -> Substeps:
    """Move the bytes and print each percent; `on_bytes` hears how many are done, and may refuse with a failure."""
    place = yield from _join_the_crowd(context)
    rates = _rates(context, transfer)
    printed = -1.0
    done = transfer.done
    for percent in range(100 * done // max(1, transfer.total), 101):
        until = transfer.total * percent // 100
        crowd = yield from _crowd(context, place)
        seconds = max(0, until - done) / min(rates[0] / crowd, rates[1]) * context.settings.scale
        yield Sleep(seconds)
        yield from _strike(context, transfer, when, percent)
        done = until
        on_bytes(done)
        now = context.now()
        if percent in {0, 100} or now - printed >= 1 or not context.is_plain:
            yield Out(f"{percent}%" if context.is_plain or printed < 0 else f"{_REDRAW}{percent}%")
            printed = now
    if place:
        yield Unflock(place)
        os.unlink(place)


def _rates(context: Context, transfer: Transfer) -> tuple[float, float]:
    """Return the bytes per second that the uplink and that so many streams can carry."""
    kind = "push_" if transfer.on == "push" else ""
    timings = context.settings.timings
    stream = timings[f"{kind}stream_bytes_per_second"] * max(1, transfer.concurrency)
    return timings[f"{kind}bytes_per_second"], stream


def _strike(context: Context, transfer: Transfer, when: str, percent: int) -> Substeps:
    for fault in context.settings.faults:
        if fault.percent != percent or fault.do not in {"stall", "status", "reset"}:
            continue
        if fault.do == "reset":
            yield from _try_again(context, transfer, fault)
        elif percent or fault.do == "stall":
            if not context.strikes(fault, transfer.on, transfer.target):
                continue
            if fault.do == "status":
                raise http_status(when, fault.code)
            yield Sleep(float("inf"))


def _try_again(context: Context, transfer: Transfer, fault: Fault) -> Substeps:
    for tried in range(TRIES):
        if not context.strikes(fault, transfer.on, transfer.target):
            return
        if tried < TRIES - 1:
            yield Out("network error, trying again")
            yield Sleep(1.0 * context.settings.scale)
    raise connection_lost()


def _join_the_crowd(context: Context) -> Generator[Effect, Any, str]:
    """Be counted among the pulls that share the site's uplink; the count ends with our process."""
    if context.settings.site is None:
        return ""
    os.makedirs(context.settings.site, exist_ok=True)
    place = os.path.join(context.settings.site, context.entropy(8).hex())
    with open(place, "wb"):
        pass
    yield Flock(place, wait=True)
    return place


def _crowd(context: Context, place: str) -> Generator[Effect, Any, int]:
    if context.settings.site is None:
        return 1
    crowd = 1
    for entry in os.listdir(context.settings.site):
        other = os.path.join(context.settings.site, entry)
        if other == place:
            continue
        is_busy: bool = yield IsFlocked(other)
        crowd += is_busy
    return crowd


RESERVE = 128 << 20
LEAST_REUSE = 1 << 30
_CHUNK_PERCENT = 5


class Wanted(NamedTuple):
    """What one pull is about: the command that pulls, the name as it was given, and how many streams."""

    on: str
    reference: Reference
    concurrency: int


def pull(arguments: Arguments, context: Context) -> Steps:
    """Bring an image into the cache."""
    name = arguments["remote-name"]
    if os.path.exists(layout.vm(context.home, name)) and "/" not in name:
        yield Out(f'"{name}" is a local image, nothing to pull here!')
        return 0
    reference = find_reference(name)
    if reference is None:
        raise Failed(1, f"failed to parse remote name: {name}")
    wanted = Wanted("pull", reference, arguments.whole("concurrency", 4))
    yield from into_cache(context, wanted)
    return 0


def into_cache(context: Context, wanted: Wanted) -> Substeps:
    """Pull what is not there yet, and point the tag at it."""
    reference = wanted.reference
    yield Out(f"pulling {reference}...")
    remote = yield from _manifest(context, wanted)
    target = layout.image(context.home, reference.at(remote.digest))
    if _is_linked(context, reference, target):
        yield Out(f"{target} image is already cached and linked!")
        _mark(reference, target)
        return
    host = layout.registry_host(context.home, reference.host)
    os.makedirs(host, exist_ok=True)
    is_free: bool = yield Flock(host, wait=False)
    if not is_free:
        yield Out("waiting for lock...")
        yield Flock(host, wait=True)
    if layout.is_whole(target):
        yield Out(f"{target} image is already cached! creating a symlink...")
    else:
        yield from _fetch(context, wanted, remote, target)
    _mark(reference, target)
    _link(context, reference, target)
    prune.collect(context.home)
    yield Unflock(host)


def _manifest(context: Context, wanted: Wanted) -> Generator[Effect, Any, Remote]:
    yield Out("pulling manifest...")
    yield from ask_manifest(context, wanted.on, str(wanted.reference), "pulling manifest")
    remote = registry.look_up(context, wanted.reference)
    if remote is None:
        raise http_status("pulling manifest", 404)
    registry.check_login(context, wanted.reference, remote.facts)
    return remote


def _is_linked(context: Context, reference: Reference, target: str) -> bool:
    if not layout.is_whole(target):
        return False
    return os.path.realpath(layout.image(context.home, reference)) == os.path.realpath(target)


def _mark(reference: Reference, target: str) -> None:
    if reference.digest:
        with open(os.path.join(target, layout.MARKER), "wb"):
            pass


def _link(context: Context, reference: Reference, target: str) -> None:
    if not reference.tag:
        return
    link = layout.image(context.home, reference)
    bundles.remove(link)
    os.symlink(target, link)


def _fetch(context: Context, wanted: Wanted, remote: Remote, target: str) -> Substeps:
    import hashlib

    _check(context, remote.facts)
    name = hashlib.md5(str(wanted.reference).encode(), usedforsecurity=False).hexdigest()
    staged = bundles.new_staging(context, name)
    yield Flock(staged, wait=True)
    _age_predecessor(context, wanted.reference)
    prune.make_room(context, int(remote.facts["disk_bytes"]) + RESERVE)
    try:
        yield from _fill(context, wanted, remote, staged)
    except Interrupted:
        bundles.remove(staged)
        raise
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.rename(staged, target)


def _check(context: Context, facts: Mapping[str, Any]) -> None:
    if facts["format"] == "v1" and context.settings.is_at_least("2.32"):
        raise Failed(
            1, "Error: the image uses a legacy disk media type that is no longer supported"
        )


def _age_predecessor(context: Context, reference: Reference) -> None:
    previous = layout.image(context.home, reference)
    if reference.tag and layout.is_whole(previous):
        bundles.change_disk(previous, accessed=0.0)
        os.utime(previous, (0, os.stat(previous).st_mtime))


def _fill(context: Context, wanted: Wanted, remote: Remote, staged: str) -> Substeps:
    facts = remote.facts
    bundles.write_config(staged, bundles.new_config(context, facts))
    total = registry.compressed(facts)
    reused = yield from _reuse(context, remote)
    done = max(reused, _resumed(staged, remote))
    yield Out(f"pulling disk ({total / 1e9:.1f} GB compressed)...")

    def keep(count: int) -> None:
        share = count / max(1, total)
        # Chunk by chunk: what a cut pull has of the next one is lost.
        if round(100 * share) % _CHUNK_PERCENT == 0:
            _write_disk(context, wanted, remote, staged, share)

    transfer = Transfer(wanted.on, str(wanted.reference), total, done, wanted.concurrency)
    yield from move(context, transfer, keep, "pulling blob")
    yield Out("pulling NVRAM...")
    yield Sleep(context.settings.seconds("manifest"))
    for file, content in ((layout.NVRAM, "nvram"), (layout.MANIFEST, json.dumps(remote.manifest))):
        with open(os.path.join(staged, file), "w", encoding="utf-8") as opened:
            opened.write(content)
    bundles.touch(staged, context)


def _resumed(staged: str, remote: Remote) -> int:
    """Return the bytes that an earlier try of the same image has left."""
    try:
        content = bundles.disk_content(staged)
    except FileNotFoundError:
        return 0
    return int(content.get("fetched", 0)) if content.get("digest") == remote.digest else 0


def _reuse(context: Context, remote: Remote) -> Generator[Effect, Any, int]:
    """Return the bytes that the most similar cached image spares us."""
    wanted = registry.parts_of(remote.manifest)
    best, best_bytes = "", 0
    for row in layout.cached(context.home):
        try:
            with open(os.path.join(row.folder, layout.MANIFEST), encoding="utf-8") as file:
                have = registry.parts_of(json.load(file))
        except FileNotFoundError:
            continue
        same = sum(size for digest, size in wanted.items() if digest in have)
        if same > best_bytes:
            best, best_bytes = row.name, same
    if best_bytes <= LEAST_REUSE or not context.settings.is_at_least("2.11"):
        return 0
    yield Out(f"found an image {best} that will allow us to skip {best_bytes / 1e9:.1f} GB")
    return best_bytes


def _write_disk(
    context: Context, wanted: Wanted, remote: Remote, staged: str, share: float
) -> None:
    size = int(remote.facts["size_bytes"] * share)
    fault = context.fault(wanted.on, str(wanted.reference), "no_space") if share else None
    before = bundles.disk_blocks(staged)
    if fault or size - sum(before.values()) > prune.free(context):
        raise no_space(layout.DISK)
    # Pulled again, it has other blocks than the clones of its first time have.
    (place,) = before or {context.entropy(8).hex()}
    content = {
        "image": str(wanted.reference),
        "digest": remote.digest,
        "blocks": {place: size},
        "fetched": int(registry.compressed(remote.facts) * share),
        "facts": dict(remote.facts),
        "boots": 0,
    }
    bundles.write_disk(staged, content, virtual_size=int(remote.facts["disk_bytes"]))
