"""`tart run`, `stop`, `suspend` and `exec`; and Apple's limit of two macOS guests per Mac.

The POSIX lock on config.json marks a running VM and names its process, so nothing here opens that file while the lock is held. Exit
code 0 does not prove a clean end: a crash of the guest has it, too. A slot of the limit is a file whose `flock` the guest's process
holds, so it is free when that process is gone. A leaked slot of the settings has no process; a reboot frees it.
"""

import json
import os
from collections.abc import Generator, Mapping
from typing import Any

from bramley.sim.tart import bundles, effects, layout
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Effect, Steps
from bramley.sim.tart.failures import Failed, WrongUsage, is_not_running, virtualization
from bramley.sim.tart.settings import Context

AGENT_TIMEOUT = 10.0
DEAD_SESSION = "no-session"
ENDINGS: Mapping[int, str] = {
    effects.HALTED: "guest has stopped the virtual machine",
    effects.CRASHED: "guest has stopped the virtual machine due to error: "
    'Error Domain=VZErrorDomain Code=1 "Internal Virtualization error."',
}
DISCONNECTED_TEXT = (
    "virtual machine's network attachment <VZVirtioNetworkDevice: 0x600003f0c0c0> has been disconnected with error: "
    'Error Domain=VZErrorDomain Code=7 "The network attachment was lost."'
)
NETWORKS = ("net-bridged", "net-softnet", "net-host")
POLL = 0.1


def run(arguments: Arguments, context: Context) -> Steps:
    """Run a VM until its guest ends or a signal stops it."""
    name = arguments["name"]
    bundle = _validated(arguments, context, name)
    shares = [_share(text) for text in arguments.all_values("dir")]
    _check_disks(arguments)
    yield effects.Flock(context.home, wait=True)
    config = bundles.read_config(bundle)
    yield from _ensure_unique_mac(context, name, bundle, config)
    path = os.path.join(bundle, layout.CONFIG)
    bundles.touch(bundle, context)
    is_ours: bool = yield effects.RunLock(path)
    if not is_ours:
        raise Failed(2, f'VM "{name}" is already running!')
    yield effects.Unflock(context.home)
    yield effects.Sleep(context.settings.seconds("start"))
    yield from _check_start(context, name, shares)
    is_macos = config["os"] == "darwin"
    slot = yield from _acquire_slot(context, name, is_macos=is_macos)
    outlives = context.fault("run", name, "outlives") is not None
    _restore(bundle, config)
    plan = effects.Plan(name, config["macAddress"], dict(shares), outlives, is_macos)
    yield effects.Boot(plan, slot)
    yield from _print_vnc_address(arguments, context)
    return (yield from _follow(context, name, bundle, outlives=outlives))


def _validated(arguments: Arguments, context: Context, name: str) -> str:
    """Validate the arguments and open the VM, as tart does: a missing one has code 1 and a prefix here."""
    networks = [word for word in NETWORKS if arguments.has(word) or arguments.find(word)]
    if len(networks) > 1:
        raise WrongUsage(f"--{networks[0]} and --{networks[1]} are mutually exclusive")
    if arguments.has("graphics") and arguments.has("no-graphics"):
        raise WrongUsage("--graphics and --no-graphics are mutually exclusive")
    if arguments.find("net-bridged") == "list":
        raise Failed(1, 'en0 (or "Ethernet")')
    _check_disk_options(arguments)
    try:
        return layout.existing_vm(context.home, name)
    except Failed as failed:
        raise Failed(1, f"Error: {failed.message}") from failed


def _check_disk_options(arguments: Arguments) -> None:
    supported = {
        "ro",
        *(f"sync={each}" for each in ("none", "fsync", "full")),
        *(f"caching={each}" for each in ("automatic", "cached", "uncached")),
    }
    for option in (arguments.find("root-disk-opts") or "ro").split(","):
        if option not in supported:
            raise WrongUsage(f"unsupported root disk option '{option}'")


def _check_disks(arguments: Arguments) -> None:
    """Fail if a further disk does not exist; the simulated guest does not read them."""
    for text in arguments.all_values("disk"):
        path = text.partition(",")[0].removesuffix(":ro")
        if not os.path.exists(path):
            raise Failed(1, f"disk {path} does not exist")


def _share(text: str) -> tuple[str, dict[str, Any]]:
    """Read `[name:]path[:ro][,tag=T]`."""
    text = text.partition(",tag=")[0]
    is_read_only = text.endswith(":ro")
    text = text.removesuffix(":ro")
    name, colon, path = text.partition(":")
    if not colon:
        name, path = os.path.basename(text), text
    return name, {"path": path, "read_only": is_read_only}


def _ensure_unique_mac(
    context: Context, name: str, bundle: str, config: dict[str, Any]
) -> Generator[Effect, Any, None]:
    """Give the VM a new MAC if a running one has the same."""
    for other in layout.names(context.home):
        if other == name:
            continue
        folder = layout.vm(context.home, other)
        holder: int | None = yield effects.RunHolder(os.path.join(folder, layout.CONFIG))
        if holder is None or bundles.read_config(folder)["macAddress"] != config["macAddress"]:
            continue
        yield effects.Out(f'VM "{other}" is running with the same MAC address!')
        yield effects.Out("Regenerating MAC address...")
        config["macAddress"] = bundles.new_mac(context)
        bundles.write_config(bundle, config)


def _check_start(
    context: Context, name: str, shares: list[tuple[str, dict[str, Any]]]
) -> Generator[Effect, Any, None]:
    """Fail as Apple's framework does when the VM cannot start."""
    if context.fault("run", name, "no_session") or not has_session(context):
        raise virtualization(-9, "The virtual machine failed to start: HostKey is not available.")
    if context.fault("run", name, "nvram_locked"):
        raise virtualization(2, "Failed to lock auxiliary storage. (POSIX 35)")
    if context.fault("run", name, "softnet_died"):
        raise Failed(1, "Softnet process terminated prematurely")
    if context.fault("run", name, "limit"):
        raise (yield from _limit_failure(context))
    if not all(os.path.isdir(share["path"]) for _, share in shares):
        raise virtualization(2, "The directory sharing device configuration is invalid.")
    if bundles.disk_content(layout.vm(context.home, name)).get("facts", {}).get("is_too_new"):
        raise Failed(1, "Error: the host macOS version is outdated to run this virtual machine")


def _restore(bundle: str, config: Mapping[str, Any]) -> None:
    """Remove a saved state once the VM runs again, and the socket of an earlier run; only the same hardware can restore it."""
    try:
        with open(os.path.join(bundle, layout.STATE), encoding="utf-8") as state:
            saved = json.load(state)
    except FileNotFoundError:
        saved = {"hardware": bundles.hardware(config)}
    if saved.get("hardware") != bundles.hardware(config):
        raise virtualization(12, "The virtual machine failed to restore. Invalid argument.")
    # Recorded in the disk: a process that runs a VM must not open its config.json again.
    bundles.change_disk(bundle, hardware=bundles.hardware(config))
    for file in (layout.STATE, layout.SOCKET):
        bundles.remove(os.path.join(bundle, file))


def _print_vnc_address(arguments: Arguments, context: Context) -> Generator[Effect, Any, None]:
    """Print the VNC address, unless a screen is shown."""
    is_shown = arguments.has("vnc") or arguments.has("vnc-experimental")
    if not is_shown or not (context.is_plain or arguments.has("no-graphics")):
        return
    digits = context.entropy(10)
    words = "-".join(
        "".join("abcdefghijklmnopqrstuvwxyz"[byte % 26] for byte in digits[start : start + 2])
        for start in range(0, 8, 2)
    )
    port = 50000 + int.from_bytes(digits[8:], "big") % 10000
    yield effects.Out(f"VNC server is running at vnc://:{words}@127.0.0.1:{port}")


def _follow(context: Context, name: str, bundle: str, *, outlives: bool) -> Steps:
    is_stuck = False
    while True:
        try:
            ending: int = yield effects.AwaitGuest()
        except effects.Interrupted as interrupted:
            if interrupted.signal == "USR1":
                return (yield from _suspend_guest(context, bundle))
            if interrupted.signal == "USR2" or is_stuck:
                continue
            yield effects.Out("Stopping VM...")
            if context.fault("run", name, "ignores_stop"):
                is_stuck = True
                continue
            yield effects.Sleep(context.settings.seconds("stop"))
            if not outlives:
                yield effects.PowerOff()
            return 0
        yield effects.Out(ENDINGS.get(ending, DISCONNECTED_TEXT))
        return 0


def _suspend_guest(context: Context, bundle: str) -> Steps:
    yield effects.Out("pausing VM to take a snapshot...")
    yield effects.Out("creating a snapshot...")
    yield effects.Sleep(context.settings.seconds("snapshot"))
    with open(os.path.join(bundle, layout.STATE), "w", encoding="utf-8") as file:
        hardware = bundles.disk_content(bundle).get("hardware")
        json.dump({"saved": context.now(), "hardware": hardware}, file)
    yield effects.Out("snapshot created successfully! shutting down the VM...")
    yield effects.PowerOff()
    return 0


def stop(arguments: Arguments, context: Context) -> Steps:
    """Signal the process that runs a VM to power it off, and kill it after the timeout."""
    name = arguments["name"]
    limit = arguments.non_negative("timeout", 30)
    bundle = layout.existing_vm(context.home, name)
    path = os.path.join(bundle, layout.CONFIG)
    holder: int | None = yield effects.RunHolder(path)
    if holder is None:
        if not os.path.exists(os.path.join(bundle, layout.STATE)):
            raise is_not_running(name)
        bundles.remove(os.path.join(bundle, layout.STATE))
        return 0
    yield effects.Signal(holder, "INT")
    until = context.now() + limit
    while context.now() < until:
        yield effects.Sleep(POLL)
        holder = yield effects.RunHolder(path)
        if holder is None:
            return 0
    if holder is not None:
        yield effects.Signal(holder, "KILL")
    return 0


def suspend(arguments: Arguments, context: Context) -> Steps:
    """Signal the process that runs a VM to save its state; do not wait for it."""
    name = arguments["name"]
    path = os.path.join(layout.existing_vm(context.home, name), layout.CONFIG)
    holder: int | None = yield effects.RunHolder(path)
    if holder is None:
        # Tart puts the message into itself here.
        raise is_not_running(is_not_running(name).message)
    yield effects.Signal(holder, "USR1")
    return 0


def execute(arguments: Arguments, context: Context) -> Steps:
    """Run a command in a running VM."""
    name, *argv = arguments.positionals
    path = os.path.join(layout.existing_vm(context.home, name), layout.CONFIG)
    holder: int | None = yield effects.RunHolder(path)
    if holder is None:
        raise is_not_running(name)
    stdin: bytes = b""
    if arguments.has("interactive"):
        stdin = yield effects.ReadStdin()
    result: effects.CommandResult | None = None
    if context.fault("exec", name, "no_agent"):
        yield effects.Sleep(AGENT_TIMEOUT)
    else:
        result = yield effects.RunInGuest(name, tuple(argv), stdin.decode(), AGENT_TIMEOUT)
    if result is None:
        raise Failed(
            1, "Error: unavailable (14): failed to connect to the VM, is the guest agent running?"
        )
    yield effects.Sleep(result.seconds)
    if result.stdout:
        yield effects.Write(result.stdout, is_error=False)
    if result.stderr:
        yield effects.Write(result.stderr, is_error=True)
    return result.code


def has_session(context: Context) -> bool:
    """Return whether a user is logged in at the console; other programs create and remove the file."""
    is_dead = os.path.exists(os.path.join(context.hidden, DEAD_SESSION))
    return bool(context.settings.host["has_session"]) and not is_dead


def _acquire_slot(context: Context, name: str, *, is_macos: bool) -> Generator[Effect, Any, str]:
    """Return a slot with its lock, for the guest to inherit; a third macOS guest fails."""
    folder = os.path.join(context.hidden, "slots")
    os.makedirs(folder, exist_ok=True)
    # The lock on the folder must be held until the slot exists: two processes must not count at the same time.
    yield effects.Flock(folder, wait=True)
    used = yield from _count_used_slots(folder)
    allowed = int(context.settings.host["macos_guests"])
    if is_macos and used + int(context.settings.host["leaked_slots"]) >= allowed:
        raise (yield from _limit_failure(context))
    slot = os.path.join(folder, context.entropy(8).hex())
    with open(slot, "w", encoding="utf-8") as file:
        json.dump({"vm": name, "is_macos": is_macos}, file)
    yield effects.Flock(slot, wait=True)
    yield effects.Unflock(folder)
    return slot


def _count_used_slots(folder: str) -> Generator[Effect, Any, int]:
    used = 0
    for entry in os.listdir(folder):
        slot = os.path.join(folder, entry)
        is_held: bool = yield effects.IsFlocked(slot)
        if not is_held:
            os.unlink(slot)
            continue
        with open(slot, encoding="utf-8") as file:
            used += bool(json.load(file)["is_macos"])
    return used


def _limit_failure(context: Context) -> Generator[Effect, Any, Failed]:
    """Return the failure of a third VM; it names the running VMs, which a leaked slot is not."""
    if not context.settings.is_at_least("2.18.1"):
        return virtualization(
            6, "The maximum supported number of active virtual machines has been reached."
        )
    running = []
    for other in layout.names(context.home):
        config = os.path.join(layout.vm(context.home, other), layout.CONFIG)
        holder: int | None = yield effects.RunHolder(config)
        if holder is not None:
            running.append(other)
    hint = f" (other running VMs: {', '.join(running)})" if running else ""
    return Failed(1, f"The number of VMs exceeds the system limit{hint}")
