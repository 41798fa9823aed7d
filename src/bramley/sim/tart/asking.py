"""Questions: `list`, `get` and `ip`, with fields that come and go by release and sizes in two types."""

import os
import time
from collections.abc import Generator, Mapping
from typing import Any

from bramley.sim.tart import bundles, disks, layout, printing
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import Answer, Ask, Effect, Out, RunHolder, Sleep, Steps
from bramley.sim.tart.failures import Failed, WrongUsage
from bramley.sim.tart.world import World

GB = 1_000_000_000


def listing(arguments: Arguments, world: World) -> Steps:
    """Print local VMs, then cached images; each image by tag and again by digest."""
    source = arguments.find("source")
    if source not in {None, "local", "oci"}:
        raise WrongUsage(f"'{source}' is not a valid <source>")
    is_json = _wants_json(arguments)
    yield Sleep(world.settings.seconds("query"))
    rows = []
    if source != "oci":
        for name in layout.names(world.home):
            state = yield from _state(world, name, "list")
            rows.append(_row(world, "local", name, layout.vm(world.home, name), state))
    if source != "local":
        kind = "OCI" if world.settings.is_at_least("2.11") else "oci"
        rows += [
            _row(world, kind, row.name, row.folder, "stopped") for row in layout.cached(world.home)
        ]
    if arguments.has("quiet"):
        for row in rows:
            yield Out(row["Name"])
    elif is_json:
        yield Out(printing.as_json(world, rows))
    else:
        yield Out(_as_table(rows))
    return 0


def _wants_json(arguments: Arguments) -> bool:
    format_ = arguments.find("format") or "text"
    if format_ not in {"text", "json"}:
        raise WrongUsage(f"The value '{format_}' is invalid for '--format <format>'")
    return format_ == "json"


def _row(world: World, source: str, name: str, bundle: str, state: str) -> dict[str, Any]:
    row = {
        "Source": source,
        "Name": name,
        "Disk": disks.virtual(bundle) // GB,
        "Size": disks.size(bundle) // GB,
        "Running": state == "running",
        "State": state,
    }
    if world.settings.is_at_least("2.31"):
        row["Accessed"] = _iso(bundles.accessed(bundle))
    elif world.settings.is_at_least("2.15"):
        row["SizeOnDisk"] = row["Size"]
    return row


def _iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def _as_table(rows: list[dict[str, Any]]) -> str:
    columns = [
        column
        for column in ("Source", "Name", "Disk", "Size", "SizeOnDisk", "Accessed", "State")
        if not rows or column in rows[0]
    ]
    return printing.table(columns, [[row[column] for column in columns] for row in rows])


def _state(world: World, name: str, on: str) -> Generator[Effect, Any, str]:
    if lie := world.fault(on, name, "state"):
        return lie.says
    bundle = layout.vm(world.home, name)
    holder: int | None = yield RunHolder(os.path.join(bundle, layout.CONFIG))
    if holder is not None:
        return "running"
    is_suspended = os.path.exists(os.path.join(bundle, layout.STATE))
    return "suspended" if is_suspended else "stopped"


def get(arguments: Arguments, world: World) -> Steps:
    """Print one local VM."""
    name = arguments["name"]
    is_json = _wants_json(arguments)
    yield Sleep(world.settings.seconds("query"))
    bundle = layout.existing(world.home, name)
    config = bundles.read_config(bundle)
    state = yield from _state(world, name, "get")
    facts = {
        "CPU": config["cpuCount"],
        "Memory": config["memorySize"] // bundles.MIB,
        "Disk": disks.virtual(bundle) // GB,
        "Size": f"{disks.size(bundle) / GB:.3f}",
        "Display": _display(config["display"]),
        "Running": state == "running",
        "State": state,
    }
    if world.settings.is_at_least("2.8"):
        facts["OS"] = config["os"]
    if world.settings.is_at_least("2.28"):
        facts["DiskFormat"] = config["diskFormat"]
    if is_json:
        yield Out(printing.as_json(world, facts))
    else:
        columns = [column for column in facts if column != "Running"]
        yield Out(printing.table(columns, [[facts[column] for column in columns]]))
    return 0


def _display(display: Mapping[str, Any]) -> str:
    unit = {"point": "pt", "pixel": "px"}.get(display.get("unit", ""), "")
    return f"{display['width']}x{display['height']}{unit}"


def ip(arguments: Arguments, world: World) -> Steps:
    """Print a VM's address, be it running or not: an unexpired lease is answer enough."""
    name = arguments["name"]
    wait = arguments.whole("wait", 0)
    resolver = arguments.find("resolver") or "dhcp"
    if resolver not in {"dhcp", "arp", "agent"}:
        raise WrongUsage(f"The value '{resolver}' is invalid for '--resolver <resolver>'")
    mac = bundles.read_config(layout.existing(world.home, name))["macAddress"]
    until = world.around.now() + wait
    while True:
        address = yield from _address(world, name, mac, resolver)
        if address is not None:
            yield Out(address)
            return 0
        yield Sleep(1.0)
        if world.around.now() >= until:
            raise Failed(1, "no IP address found, is your VM running?")


def _address(
    world: World, name: str, mac: str, resolver: str
) -> Generator[Effect, Any, str | None]:
    if resolver == "agent":
        answer: Answer | None = yield Ask(name, ("address",), "", 1.0)
        return answer.stdout.strip() or None if answer else None
    from bramley.sim.tart import leases

    return leases.address(world, mac, only_valid=resolver == "dhcp")
