"""`tart pull`, and transfers to and from the registry: how fast they are, what is printed, and which faults apply to them.

One pull per registry host runs at a time, staged under a name that the next try finds again. SIGINT removes the staging, SIGKILL and
SIGTERM leave it. Network faults are retried up to five times; an HTTP status is not.
"""

import json
import os
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from bramley.sim.tart import bundles, effects, layout, prune, registry
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Effect, Steps, Substeps
from bramley.sim.tart.failures import Failed, http_status, no_space
from bramley.sim.tart.layout import Reference, find_reference
from bramley.sim.tart.registry import Remote
from bramley.sim.tart.settings import Context, Fault

TRIES = 5
_REDRAW = "\033[1A\033[J"
RESERVE = 128 << 20
MIN_REUSE = 1 << 30
_CHUNK_PERCENT = 5


class PullRequest(NamedTuple):
    """One pull: the command that pulls, the image as it was named, and the number of streams."""

    on: str
    reference: Reference
    concurrency: int


def pull(arguments: Arguments, context: Context) -> Steps:
    """Pull an image into the cache."""
    name = arguments["remote-name"]
    if os.path.exists(layout.vm(context.home, name)) and "/" not in name:
        yield effects.Out(f'"{name}" is a local image, nothing to pull here!')
        return 0
    reference = find_reference(name)
    if reference is None:
        raise Failed(1, f"failed to parse remote name: {name}")
    request = PullRequest("pull", reference, arguments.non_negative("concurrency", 4))
    yield from pull_into_cache(context, request)
    return 0


def pull_into_cache(context: Context, request: PullRequest) -> Substeps:
    """Pull an image that is not cached yet, and link the tag to it."""
    reference = request.reference
    yield effects.Out(f"pulling {reference}...")
    remote = yield from _manifest(context, request)
    target = layout.image(context.home, reference.at(remote.digest))
    if _is_linked(context, reference, target):
        yield effects.Out(f"{target} image is already cached and linked!")
        _mark_as_explicit(reference, target)
        return
    host = layout.registry_host(context.home, reference.host)
    os.makedirs(host, exist_ok=True)
    is_free: bool = yield effects.Flock(host, wait=False)
    if not is_free:
        yield effects.Out("waiting for lock...")
        yield effects.Flock(host, wait=True)
    if layout.is_complete(target):
        yield effects.Out(f"{target} image is already cached! creating a symlink...")
    else:
        yield from _fetch(context, request, remote, target)
    _mark_as_explicit(reference, target)
    _link(context, reference, target)
    removed = prune.collect(context.home)
    yield effects.Sleep(removed * context.settings.seconds("delete"))
    yield effects.Unflock(host)


def _manifest(context: Context, request: PullRequest) -> Generator[Effect, Any, Remote]:
    yield effects.Out("pulling manifest...")
    yield from request_manifest(context, request.on, str(request.reference), "pulling manifest")
    remote = registry.find_image(context, request.reference)
    if remote is None:
        raise http_status("pulling manifest", 404)
    registry.check_login(context, request.reference, remote.facts)
    return remote


def _is_linked(context: Context, reference: Reference, target: str) -> bool:
    if not layout.is_complete(target):
        return False
    return os.path.realpath(layout.image(context.home, reference)) == os.path.realpath(target)


def _mark_as_explicit(reference: Reference, target: str) -> None:
    if reference.digest:
        with open(os.path.join(target, layout.MARKER), "wb"):
            pass


def _link(context: Context, reference: Reference, target: str) -> None:
    if not reference.tag:
        return
    link = layout.image(context.home, reference)
    bundles.remove(link)
    os.symlink(target, link)


def _fetch(context: Context, request: PullRequest, remote: Remote, target: str) -> Substeps:
    import hashlib

    _check(context, remote.facts)
    name = hashlib.md5(str(request.reference).encode(), usedforsecurity=False).hexdigest()
    staged = bundles.new_staging(context, name)
    yield effects.Flock(staged, wait=True)
    _age_previous(context, request.reference)
    prune.make_room(context, int(remote.facts["disk_bytes"]) + RESERVE)
    try:
        yield from _fill(context, request, remote, staged)
    except effects.Interrupted:
        bundles.remove(staged)
        raise
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.rename(staged, target)


def _check(context: Context, facts: Mapping[str, Any]) -> None:
    if facts["format"] == "v1" and context.settings.is_at_least("2.32"):
        raise Failed(
            1, "Error: the image uses a legacy disk media type that is no longer supported"
        )


def _age_previous(context: Context, reference: Reference) -> None:
    previous = layout.image(context.home, reference)
    if reference.tag and layout.is_complete(previous):
        bundles.change_disk(previous, accessed=0.0)
        os.utime(previous, (0, os.stat(previous).st_mtime))


def _fill(context: Context, request: PullRequest, remote: Remote, staged: str) -> Substeps:
    facts = remote.facts
    bundles.write_config(staged, bundles.new_config(context, facts))
    total = registry.compressed(facts)
    reused = yield from _reusable_bytes(context, remote)
    done = max(reused, _resumable_bytes(staged, remote))
    yield effects.Out(f"pulling disk ({total / 1e9:.1f} GB compressed)...")

    def save_progress(count: int) -> None:
        share = count / max(1, total)
        # Only whole chunks are kept: an interrupted pull loses the rest.
        if round(100 * share) % _CHUNK_PERCENT == 0:
            _write_disk(context, request, remote, staged, share)

    transfer = Transfer(request.on, str(request.reference), total, done, request.concurrency)
    yield from run_transfer(context, transfer, save_progress, "pulling blob")
    yield effects.Out("pulling NVRAM...")
    yield effects.Sleep(context.settings.seconds("manifest"))
    for file, content in ((layout.NVRAM, "nvram"), (layout.MANIFEST, json.dumps(remote.manifest))):
        with open(os.path.join(staged, file), "w", encoding="utf-8") as opened:
            opened.write(content)
    bundles.touch(staged, context)


def _resumable_bytes(staged: str, remote: Remote) -> int:
    """Return the bytes that an earlier pull of the same image has left in the staging."""
    try:
        content = bundles.disk_content(staged)
    except FileNotFoundError:
        return 0
    return int(content.get("fetched", 0)) if content.get("digest") == remote.digest else 0


def _reusable_bytes(context: Context, remote: Remote) -> Generator[Effect, Any, int]:
    """Return the bytes that need not be pulled because the most similar cached image has them."""
    request = registry.parts_of(remote.manifest)
    best, best_bytes = "", 0
    for row in layout.cached(context.home):
        try:
            with open(os.path.join(row.folder, layout.MANIFEST), encoding="utf-8") as file:
                have = registry.parts_of(json.load(file))
        except FileNotFoundError:
            continue
        same = sum(size for digest, size in request.items() if digest in have)
        if same > best_bytes:
            best, best_bytes = row.name, same
    if best_bytes <= MIN_REUSE or not context.settings.is_at_least("2.11"):
        return 0
    yield effects.Out(f"found an image {best} that will allow us to skip {best_bytes / 1e9:.1f} GB")
    return best_bytes


def _write_disk(
    context: Context, request: PullRequest, remote: Remote, staged: str, share: float
) -> None:
    size = int(remote.facts["size_bytes"] * share)
    fault = context.fault(request.on, str(request.reference), "no_space") if share else None
    before = bundles.disk_blocks(staged)
    if fault or size - sum(before.values()) > prune.free_bytes(context):
        raise no_space(layout.DISK)
    # An image that is pulled again shares no blocks with the clones of its first pull.
    (marker,) = before or {context.entropy(8).hex()}
    content = {
        "image": str(request.reference),
        "digest": remote.digest,
        "blocks": {marker: size},
        "fetched": int(registry.compressed(remote.facts) * share),
        "facts": dict(remote.facts),
        "boots": 0,
    }
    bundles.write_disk(staged, content, virtual_size=int(remote.facts["disk_bytes"]))


class Transfer(NamedTuple):
    """One transfer of a disk: the command and target by which faults match it, and the bytes done already."""

    on: str
    target: str
    total: int
    done: int
    concurrency: int


def request_manifest(context: Context, on: str, target: str, when: str) -> Substeps:
    """Wait for the registry's response, or fail with its error status."""
    yield effects.Sleep(context.settings.seconds("manifest"))
    for fault in context.settings.faults:
        if fault.do == "status" and fault.percent == 0 and context.applies(fault, on, target):
            raise http_status(when, fault.code)


def run_transfer(
    context: Context, transfer: Transfer, on_bytes: Callable[[int], None], when: str
) -> Substeps:
    """Transfer the bytes and print each percent; `on_bytes` gets the bytes done so far, and may raise Failed."""
    marker = yield from _register_transfer(context)
    rates = _rates(context, transfer)
    printed = -1.0
    done = transfer.done
    for percent in range(100 * done // max(1, transfer.total), 101):
        until = transfer.total * percent // 100
        count = yield from _count_transfers(context, marker)
        seconds = max(0, until - done) / min(rates[0] / count, rates[1]) * context.settings.scale
        yield effects.Sleep(seconds)
        yield from _apply_faults(context, transfer, when, percent)
        registry.count_bytes(context, transfer.on, max(0, until - done))
        done = until
        on_bytes(done)
        now = context.now()
        if percent in {0, 100} or now - printed >= 1 or not context.is_plain:
            yield effects.Out(
                f"{percent}%" if context.is_plain or printed < 0 else f"{_REDRAW}{percent}%"
            )
            printed = now
    if marker:
        yield effects.Unflock(marker)
        os.unlink(marker)


def _rates(context: Context, transfer: Transfer) -> tuple[float, float]:
    """Return the bytes per second that the uplink and that so many streams can carry."""
    kind = "push_" if transfer.on == "push" else ""
    timings = context.settings.timings
    stream = timings[f"{kind}stream_bytes_per_second"] * max(1, transfer.concurrency)
    return timings[f"{kind}bytes_per_second"], stream


def _apply_faults(context: Context, transfer: Transfer, when: str, percent: int) -> Substeps:
    for fault in context.settings.faults:
        if fault.percent != percent or fault.do not in {"stall", "status", "reset"}:
            continue
        if fault.do == "reset":
            yield from _retry(context, transfer, fault)
        elif percent or fault.do == "stall":
            if not context.applies(fault, transfer.on, transfer.target):
                continue
            if fault.do == "status":
                raise http_status(when, fault.code)
            yield effects.Sleep(float("inf"))


def _retry(context: Context, transfer: Transfer, fault: Fault) -> Substeps:
    for attempt in range(TRIES):
        if not context.applies(fault, transfer.on, transfer.target):
            return
        if attempt < TRIES - 1:
            yield effects.Out("network error, trying again")
            yield effects.Sleep(1.0 * context.settings.scale)
    raise Failed(1, "Error: The network connection was lost.")


def _register_transfer(context: Context) -> Generator[Effect, Any, str]:
    """Register among the pulls that share the site's uplink; the lock on the marker ends with our process."""
    if context.settings.site is None:
        return ""
    os.makedirs(context.settings.site, exist_ok=True)
    marker = os.path.join(context.settings.site, context.entropy(8).hex())
    with open(marker, "wb"):
        pass
    yield effects.Flock(marker, wait=True)
    return marker


def _count_transfers(context: Context, marker: str) -> Generator[Effect, Any, int]:
    if context.settings.site is None:
        return 1
    count = 1
    for entry in os.listdir(context.settings.site):
        other = os.path.join(context.settings.site, entry)
        if other == marker:
            continue
        is_busy: bool = yield effects.IsFlocked(other)
        count += is_busy
    return count
