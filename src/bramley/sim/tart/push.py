"""`tart push`: uploads configuration, disk and NVRAM in this order, and loses the lock of the VM after the first.

Tart reads config.json while it holds the lock on it; closing that file drops the lock. So through the long disk phase the VM
counts as stopped, `tart delete` succeeds, and the push fails only when it comes to open nvram.bin.
"""

import os
from typing import Any

from bramley.sim.tart import bundles, layout, pull, registry
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Out, RunLock, RunUnlock, Sleep, Steps, Substeps
from bramley.sim.tart.failures import Failed, WrongUsage, is_running, no_file
from bramley.sim.tart.layout import Reference, find_reference
from bramley.sim.tart.pull import Transfer, request_manifest, run_transfer
from bramley.sim.tart.registry import Remote
from bramley.sim.tart.settings import IMAGE, Context


def push(arguments: Arguments, context: Context) -> Steps:
    """Send a VM, or a cached image under new names, to a registry."""
    name, *targets = arguments.positionals
    references = [_remote(each) for each in targets]
    labels = dict(_label(each) for each in arguments.all_values("label"))
    source = find_reference(name)
    if source is not None:
        yield from _retag(context, source, references)
        return 0
    bundle = layout.existing_vm(context.home, name)
    path = os.path.join(bundle, layout.CONFIG)
    is_idle: bool = yield RunLock(path)
    if not is_idle:
        raise is_running(name)
    yield Out("pushing config...")
    config = bundles.read_config(bundle)
    yield RunUnlock(path)
    disk, virtual = bundles.disk_content(bundle), bundles.virtual_size(bundle)
    remote = _image_of(context, name, config, disk, virtual=virtual, labels=labels)
    yield from _send(context, name, remote, references[0], arguments.non_negative("concurrency", 4))
    yield Out("pushing NVRAM...")
    if not os.path.exists(os.path.join(bundle, layout.NVRAM)):
        raise no_file(layout.NVRAM)
    yield Sleep(context.settings.seconds("manifest"))
    yield from _push_manifests(context, name, remote, references)
    if arguments.has("populate-cache"):
        for reference in references:
            request = pull.PullRequest("push", reference, 4)
            yield from pull.pull_into_cache(context, request)
    return 0


def _remote(name: str) -> Reference:
    reference = find_reference(name)
    if reference is None or reference.digest:
        raise Failed(1, f"failed to parse remote name: {name}")
    return reference


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise WrongUsage(f"The value '{text}' is invalid for '--label <label>'")
    return key, value


def _image_of(
    context: Context,
    name: str,
    config: dict[str, Any],
    disk: dict[str, Any],
    *,
    virtual: int,
    labels: dict[str, str],
) -> Remote:
    """Return the image that a VM becomes; unchanged chunks of the disk are those of the image it came from."""
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
    manifest = registry.manifest_of(facts, registry.chunks(context, origin, facts), labels=labels)
    return Remote(registry.digest_of(manifest), manifest, facts)


def _send(
    context: Context, name: str, remote: Remote, reference: Reference, concurrency: int
) -> Substeps:
    yield from request_manifest(context, "push", name, "checking blob")
    registry.check_login(context, reference, remote.facts)
    yield Out("pushing disk... this will take a while...")
    total = registry.compressed(remote.facts)
    done = total if registry.find_image(context, reference.at(remote.digest)) else 0
    transfer = Transfer("push", name, total, done, concurrency)
    yield from run_transfer(context, transfer, lambda _: None, "pushing blob")


def _push_manifests(
    context: Context, name: str, remote: Remote, references: list[Reference]
) -> Substeps:
    for reference in references:
        yield Out(f"pushing manifest for {reference}...")
        yield from request_manifest(context, "push", name, "pushing manifest")
        registry.store(context, reference, remote)


def _retag(context: Context, source: Reference, references: list[Reference]) -> Substeps:
    layout.existing_bundle(context.home, str(source))
    remote = registry.find_image(context, source)
    if remote is None:
        raise Failed(1, "Error: the image is not in its registry any more")
    yield from _push_manifests(context, str(source), remote, references)
