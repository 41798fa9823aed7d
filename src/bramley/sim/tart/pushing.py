"""`tart push`: configuration, disk, NVRAM, in this order, and the lock of the VM lost after the first.

Tart reads config.json while it holds the lock on it; closing that file drops the lock. So through the long disk phase the VM
counts as stopped, `tart delete` succeeds, and the push fails only when it comes to open nvram.bin.
"""

import os
from typing import Any

from bramley.sim.tart import bundles, disks, layout, pulling, registry
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Out, RunLock, RunUnlock, Sleep, Steps
from bramley.sim.tart.failures import Failed, WrongUsage, is_running, no_file
from bramley.sim.tart.references import Reference, find
from bramley.sim.tart.registry import Remote
from bramley.sim.tart.settings import IMAGE
from bramley.sim.tart.transfers import Transfer, Waits, ask_manifest, move
from bramley.sim.tart.world import World


def push(arguments: Arguments, world: World) -> Steps:
    """Send a VM, or a cached image under new names, to a registry."""
    name, *targets = arguments.positionals
    references = [_remote(each) for each in targets]
    labels = dict(_label(each) for each in arguments.every("label"))
    source = find(name)
    if source is not None:
        yield from _retag(world, source, references)
        return 0
    bundle = layout.existing(world.home, name)
    path = os.path.join(bundle, layout.CONFIG)
    is_idle: bool = yield RunLock(path)
    if not is_idle:
        raise is_running(name)
    yield Out("pushing config...")
    config = bundles.read_config(bundle)
    yield RunUnlock(path)
    disk, virtual = disks.content(bundle), disks.virtual(bundle)
    remote = _described(world, name, config, disk, virtual=virtual, labels=labels)
    yield from _send(world, name, remote, references[0], arguments.whole("concurrency", 4))
    yield Out("pushing NVRAM...")
    if not os.path.exists(os.path.join(bundle, layout.NVRAM)):
        raise no_file(layout.NVRAM)
    yield Sleep(world.settings.seconds("manifest"))
    yield from _name(world, name, remote, references)
    if arguments.has("populate-cache"):
        for reference in references:
            wanted = pulling.Wanted("push", reference, 4)
            yield from pulling.into_cache(world, wanted)
    return 0


def _remote(name: str) -> Reference:
    reference = find(name)
    if reference is None or reference.digest:
        raise Failed(1, f"failed to parse remote name: {name}")
    return reference


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise WrongUsage(f"The value '{text}' is invalid for '--label <label>'")
    return key, value


def _described(
    world: World,
    name: str,
    config: dict[str, Any],
    disk: dict[str, Any],
    *,
    virtual: int,
    labels: dict[str, str],
) -> Remote:
    """Return the image that a VM makes; unchanged parts of the disk are those of the image it came from."""
    facts = {
        **IMAGE,
        **disk.get("facts", {}),
        "digest": None,
        "os": config["os"],
        "cpu": config["cpuCount"],
        "memory_mb": config["memorySize"] // bundles.MIB,
        "disk_bytes": virtual,
        "size_bytes": sum(disk.get("blocks", {}).values()),
        "compressed_bytes": None,
    }
    origin = f"{name} {disk.get('boots', 0)} {facts['size_bytes']}"
    manifest = registry.manifest_of(facts, registry.chunks(world, origin, facts), labels=labels)
    return Remote(registry.digest_of(manifest), manifest, facts)


def _send(world: World, name: str, remote: Remote, reference: Reference, concurrency: int) -> Waits:
    yield from ask_manifest(world, "push", name, "checking blob")
    registry.check_login(world, reference, remote.facts)
    yield Out("pushing disk... this will take a while...")
    total = registry.compressed(remote.facts)
    done = total if registry.look_up(world, reference.at(remote.digest)) else 0
    transfer = Transfer("push", name, total, done, concurrency)
    yield from move(world, transfer, lambda _: None, "pushing blob")


def _name(world: World, name: str, remote: Remote, references: list[Reference]) -> Waits:
    for reference in references:
        yield Out(f"pushing manifest for {reference}...")
        yield from ask_manifest(world, "push", name, "pushing manifest")
        registry.store(world, reference, remote)


def _retag(world: World, source: Reference, references: list[Reference]) -> Waits:
    layout.found(world.home, str(source))
    remote = registry.look_up(world, source)
    if remote is None:
        raise Failed(1, "Error: the image is not in its registry any more")
    yield from _name(world, str(source), remote, references)
