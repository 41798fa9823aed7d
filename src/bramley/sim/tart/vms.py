"""Commands that create, change and delete VMs: `clone`, `create`, `set`, `rename`, `delete`; and `fqn`.

A clone copies MAC and serial number, and replaces a VM of the same name, even a running one, in releases that do not refuse it. Only
`delete` checks whether the VM runs.
"""

import os
from collections.abc import Generator
from typing import Any

from bramley.sim.tart import bundles, layout, prune
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Effect, Flock, Out, RunLock, Sleep, Steps, Substeps, Unflock
from bramley.sim.tart.failures import Failed, WrongUsage, does_not_exist, is_running, no_space
from bramley.sim.tart.layout import find_reference
from bramley.sim.tart.settings import IMAGE, Context, apply_faults

GB = 1_000_000_000
GIB = 1 << 30


def clone(arguments: Arguments, context: Context) -> Steps:
    """Copy a VM or an image, pulling the image if it is not cached; a cached tag is never refreshed."""
    source, name = arguments["source-name"], arguments["new-name"]
    _check_local(name)
    _check_target(arguments, context, name)
    reference = find_reference(source)
    if reference is not None and not layout.is_complete(layout.image(context.home, reference)):
        # Imported only here: hashlib would cost more than the rest of a clone.
        from bramley.sim.tart.pull import PullRequest, pull_into_cache

        requested = PullRequest("clone", reference, arguments.non_negative("concurrency", 4))
        yield from pull_into_cache(context, requested)
    bundle = layout.existing_bundle(context.home, source)
    bundles.touch(bundle, context)
    _make_room(context, bundle, arguments.non_negative("prune-limit", 100))
    staged = bundles.new_staging(context)
    yield Flock(staged, wait=True)
    yield from _copy(context, bundle, staged, name)
    return 0


def _check_local(name: str) -> None:
    if "/" in name:
        raise WrongUsage("<new-name> should be a local name")


def _check_target(arguments: Arguments, context: Context, name: str) -> None:
    """Fail for an existing target where the release does so; older ones do not have the option that allows it."""
    if context.settings.clone_overwrites:
        if arguments.has("overwrite"):
            raise WrongUsage("Unknown option '--overwrite'")
    elif layout.is_complete(layout.vm(context.home, name)) and not arguments.has("overwrite"):
        raise Failed(1, f'VM "{name}" already exists, use --overwrite to replace it')


def _make_room(context: Context, bundle: str, limit_gib: int) -> None:
    need = min(bundles.virtual_size(bundle) - bundles.allocated_size(bundle), limit_gib * GIB)
    prune.make_room(context, need, keep=bundle)


def _copy(context: Context, bundle: str, staged: str, name: str) -> Substeps:
    """Copy under the lock of TART_HOME; a process that is killed between two files leaves its staging."""
    yield Flock(context.home, wait=True)
    yield from apply_faults(context, "clone", name, "middle")
    pause = context.settings.seconds("clone") / 2
    config = bundles.read_config(bundle)
    bundles.copy_file(bundle, staged, layout.CONFIG)
    yield Sleep(pause)
    if context.fault("clone", name, "no_space"):
        raise no_space(layout.DISK)
    bundles.copy_disk(bundle, staged)
    yield Sleep(pause)
    bundles.copy_file(bundle, staged, layout.NVRAM)
    is_suspended = os.path.exists(os.path.join(bundle, layout.STATE))
    if is_suspended:
        bundles.copy_file(bundle, staged, layout.STATE)
    elif config["macAddress"] in (yield from _macs(context)):
        bundles.write_config(staged, {**config, "macAddress": bundles.new_mac(context)})
    if half := context.fault("clone", name, "half"):
        _fail_incomplete(context, staged, name, missing_file=half.value or layout.DISK)
    _replace(staged, layout.vm(context.home, name))
    yield Unflock(context.home)
    bundles.touch(layout.vm(context.home, name), context)


def _macs(context: Context) -> Generator[Effect, Any, set[str]]:
    """Return every MAC in use; fail if another process changes or removes a VM meanwhile, as the real scan does."""
    home, found = context.home, set()
    for each in layout.names(home):
        yield Sleep(0)
        found.add(bundles.read_config(layout.vm(home, each))["macAddress"])
    return found


def _fail_incomplete(context: Context, staged: str, name: str, *, missing_file: str) -> None:
    """Simulate a crash during the move: the folder is incomplete, and tart does not list it."""
    os.unlink(os.path.join(staged, missing_file))
    _replace(staged, layout.vm(context.home, name))
    raise Failed(1, f"Error: The file “{missing_file}” couldn’t be copied.")


def _replace(staged: str, target: str) -> None:
    bundles.remove(target)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.rename(staged, target)


def create(arguments: Arguments, context: Context) -> Steps:
    """Create an empty VM."""
    name = arguments["name"]
    _check_local(name)
    is_linux = arguments.has("linux")
    if is_linux == (arguments.find("from-ipsw") is not None):
        raise WrongUsage("please specify either a --from-ipsw or --linux option")
    staged = bundles.new_staging(context)
    yield Flock(staged, wait=True)
    yield Sleep(context.settings.seconds("clone"))
    facts = {**IMAGE, "os": "linux" if is_linux else "darwin"}
    if is_linux:
        facts |= {"memory_mb": 4096}
    config = bundles.new_config(context, facts)
    config["diskFormat"] = arguments.find("disk-format") or "raw"
    bundles.write_config(staged, config)
    virtual = arguments.non_negative("disk-size", 50) * GB
    content = {"image": "", "blocks": {}, "facts": facts, "boots": 0}
    bundles.write_disk(staged, content, virtual_size=virtual)
    with open(os.path.join(staged, layout.NVRAM), "wb") as file:
        file.write(b"nvram")
    bundles.touch(staged, context)
    _replace(staged, layout.vm(context.home, name))
    return 0


def change(arguments: Arguments, context: Context) -> Steps:
    """Change a VM's hardware, whether or not it runs."""
    name = arguments["name"]
    bundle = layout.existing_vm(context.home, name)
    yield Sleep(context.settings.seconds("set"))
    config = bundles.read_config(bundle)
    _set_size(arguments, config)
    if (display := arguments.find("display")) is not None:
        config["display"] = _display(display)
    config.pop("displayRefit", None)  # leaving the option out clears the value
    for word, value in (("display-refit", True), ("no-display-refit", False)):
        if arguments.has(word):
            config["displayRefit"] = value
    if arguments.has("random-mac"):
        config["macAddress"] = bundles.new_mac(context)
    if arguments.has("random-serial") and config["os"] == "darwin":
        config["ecid"] = bundles.new_serial(context)
    if context.fault("set", name, "no_space"):
        raise no_space(layout.CONFIG)
    _resize(arguments, bundle)
    # In place: a process that reads it now finds an empty file.
    os.truncate(os.path.join(bundle, layout.CONFIG), 0)
    yield Sleep(context.settings.seconds("set") / 10)
    bundles.write_config(bundle, config)
    return 0


def _set_size(arguments: Arguments, config: dict[str, Any]) -> None:
    cpu, memory = arguments.integer("cpu"), arguments.integer("memory")
    if cpu is not None:
        if config["os"] == "darwin" and cpu < config["cpuCountMin"]:
            raise Failed(
                1, f"VM should have {config['cpuCountMin']} CPU cores at minimum (requested {cpu})"
            )
        config["cpuCount"] = cpu
    if memory is not None:
        minimum, requested = config["memorySizeMin"], memory * bundles.MIB
        if config["os"] == "darwin" and requested < minimum:
            raise Failed(
                1, f"VM should have {minimum} bytes of memory at minimum (requested {requested})"
            )
        config["memorySize"] = requested


def _display(text: str) -> dict[str, Any]:
    size, unit = text, ""
    if text.endswith(("pt", "px")):
        size, unit = text[:-2], text[-2:]
    width, _, height = size.partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise WrongUsage(f"The value '{text}' is invalid for '--display <display>'")
    return {
        "width": int(width),
        "height": int(height),
        **({"unit": "point" if unit == "pt" else "pixel"} if unit else {}),
    }


def _resize(arguments: Arguments, bundle: str) -> None:
    gigabytes = arguments.integer("disk-size")
    if gigabytes is None:
        return
    now, requested = bundles.virtual_size(bundle), gigabytes * GB
    if requested < now:
        raise Failed(
            1, f"new disk size of {requested} bytes should be larger than the current one of {now}"
        )
    bundles.write_disk(bundle, bundles.disk_content(bundle), virtual_size=requested)


def rename(arguments: Arguments, context: Context) -> Steps:
    """Rename a VM, whether or not it runs."""
    old, new = arguments["name"], arguments["new-name"]
    _check_local(new)
    yield Sleep(context.settings.seconds("query"))
    if not layout.is_complete(layout.vm(context.home, old)):
        raise WrongUsage(f'failed to rename a non-existent VM: "{old}"')
    if os.path.exists(layout.vm(context.home, new)):
        raise WrongUsage(f'failed to rename VM "{old}", target VM "{new}" already exists')
    os.rename(layout.vm(context.home, old), layout.vm(context.home, new))
    return 0


def delete(arguments: Arguments, context: Context) -> Steps:
    """Delete VMs and images, up to the first that cannot be deleted."""
    for name in arguments.positionals:
        yield Sleep(context.settings.seconds("delete"))
        yield from _delete(context, name)
    return 0


def _delete(context: Context, name: str) -> Generator[Effect, Any, None]:
    reference = find_reference(name)
    if reference is not None:
        link = layout.image(context.home, reference)
        if not os.path.lexists(link):
            raise does_not_exist(name)
        if not os.path.islink(link):
            yield from _remove_config(context, link, name)
        bundles.remove(link)
        prune.collect(context.home)
        return
    bundle = layout.vm(context.home, name)
    config = os.path.join(bundle, layout.CONFIG)
    if "/" in name or not os.path.exists(config):
        raise does_not_exist(name)
    is_idle: bool = yield RunLock(config)
    if not is_idle:
        raise is_running(name)
    yield from _remove_config(context, bundle, name)
    bundles.remove(bundle)


def _remove_config(context: Context, bundle: str, name: str) -> Generator[Effect, Any, None]:
    """Remove the first file: a process that is killed now leaves a folder that tart does not list."""
    bundles.remove(os.path.join(bundle, layout.CONFIG))
    yield from apply_faults(context, "delete", name, "middle")
    yield Sleep(context.settings.seconds("delete") / 10)


def fqn(arguments: Arguments, context: Context) -> Steps:
    """Print the digest that a cached tag means; other names are echoed."""
    reference = find_reference(arguments["name"])
    if reference is None or reference.digest:
        yield Out(arguments["name"])
        return 0
    digest = os.path.basename(os.path.realpath(layout.image(context.home, reference)))
    if not digest.startswith("sha256:"):
        raise Failed(1, f"OCI storage error: {digest} is not a digest")
    yield Out(str(reference.at(digest)))
    return 0
