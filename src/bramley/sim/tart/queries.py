"""`list`, `get` and `ip`, with fields that depend on the release and sizes in two types.

JSON is printed as Swift does: keys in no order, ` : ` between key and value, slashes escaped.
"""

import json
import os
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from bramley.sim.tart import bundles, layout
from bramley.sim.tart.arguments import Arguments
from bramley.sim.tart.effects import CommandResult, Effect, Out, RunHolder, RunInGuest, Sleep, Steps
from bramley.sim.tart.failures import Failed, WrongUsage
from bramley.sim.tart.settings import Context

GB = 1_000_000_000


def listing(arguments: Arguments, context: Context) -> Steps:
    """Print local VMs, then cached images; each image by tag and again by digest."""
    source = arguments.find("source")
    if source not in {None, "local", "oci"}:
        raise WrongUsage(f"'{source}' is not a valid <source>")
    is_json = _is_json_requested(arguments)
    yield Sleep(context.settings.seconds("query"))
    rows = []
    if source != "oci":
        for name in layout.names(context.home):
            state = yield from _state(context, name, "list")
            rows.append(_row(context, "local", name, layout.vm(context.home, name), state))
    if source != "local":
        kind = "OCI" if context.settings.is_at_least("2.11") else "oci"
        rows += [
            _row(context, kind, row.name, row.folder, "stopped")
            for row in layout.cached(context.home)
        ]
    if arguments.has("quiet"):
        for row in rows:
            yield Out(row["Name"])
    elif is_json:
        yield Out(as_json(context, rows))
    else:
        yield Out(_as_table(rows))
    return 0


def _is_json_requested(arguments: Arguments) -> bool:
    format_ = arguments.find("format") or "text"
    if format_ not in {"text", "json"}:
        raise WrongUsage(f"The value '{format_}' is invalid for '--format <format>'")
    return format_ == "json"


def _row(context: Context, source: str, name: str, bundle: str, state: str) -> dict[str, Any]:
    row = {
        "Source": source,
        "Name": name,
        "Disk": bundles.virtual_size(bundle) // GB,
        "Size": bundles.allocated_size(bundle) // GB,
        "Running": state == "running",
        "State": state,
    }
    if context.settings.is_at_least("2.31"):
        accessed = time.gmtime(bundles.accessed(bundle))
        row["Accessed"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", accessed)
    elif context.settings.is_at_least("2.15"):
        row["SizeOnDisk"] = row["Size"]
    return row


def _as_table(rows: list[dict[str, Any]]) -> str:
    columns = [
        column
        for column in ("Source", "Name", "Disk", "Size", "SizeOnDisk", "Accessed", "State")
        if not rows or column in rows[0]
    ]
    return table(columns, [[row[column] for column in columns] for row in rows])


def _state(context: Context, name: str, on: str) -> Generator[Effect, Any, str]:
    if fault := context.fault(on, name, "state"):
        return fault.value
    bundle = layout.vm(context.home, name)
    holder: int | None = yield RunHolder(os.path.join(bundle, layout.CONFIG))
    if holder is not None:
        return "running"
    is_suspended = os.path.exists(os.path.join(bundle, layout.STATE))
    return "suspended" if is_suspended else "stopped"


def get(arguments: Arguments, context: Context) -> Steps:
    """Print one local VM."""
    name = arguments["name"]
    is_json = _is_json_requested(arguments)
    yield Sleep(context.settings.seconds("query"))
    bundle = layout.existing_vm(context.home, name)
    config = bundles.read_config(bundle)
    state = yield from _state(context, name, "get")
    facts = {
        "CPU": config["cpuCount"],
        "Memory": config["memorySize"] // bundles.MIB,
        "Disk": bundles.virtual_size(bundle) // GB,
        "Size": f"{bundles.allocated_size(bundle) / GB:.3f}",
        "Display": _display(config["display"]),
        "Running": state == "running",
        "State": state,
    }
    if context.settings.is_at_least("2.8"):
        facts["OS"] = config["os"]
    if context.settings.is_at_least("2.28"):
        facts["DiskFormat"] = config["diskFormat"]
    if is_json:
        yield Out(as_json(context, facts))
    else:
        columns = [column for column in facts if column != "Running"]
        yield Out(table(columns, [[facts[column] for column in columns]]))
    return 0


def _display(display: Mapping[str, Any]) -> str:
    unit = {"point": "pt", "pixel": "px"}.get(display.get("unit", ""), "")
    return f"{display['width']}x{display['height']}{unit}"


def ip(arguments: Arguments, context: Context) -> Steps:
    """Print a VM's address, whether or not it runs: an unexpired lease is enough."""
    name = arguments["name"]
    wait = arguments.non_negative("wait", 0)
    resolver = arguments.find("resolver") or "dhcp"
    if resolver not in {"dhcp", "arp", "agent"}:
        raise WrongUsage(f"The value '{resolver}' is invalid for '--resolver <resolver>'")
    mac = bundles.read_config(layout.existing_vm(context.home, name))["macAddress"]
    until = context.now() + wait
    while True:
        address = yield from _address(context, name, mac, resolver)
        if address is not None:
            yield Out(address)
            return 0
        yield Sleep(1.0)
        if context.now() >= until:
            raise Failed(1, "no IP address found, is your VM running?")


def _address(
    context: Context, name: str, mac: str, resolver: str
) -> Generator[Effect, Any, str | None]:
    if resolver == "agent":
        result: CommandResult | None = yield RunInGuest(name, ("address",), "", 1.0)
        return result.stdout.strip() or None if result else None
    from bramley.sim.tart import leases

    return leases.address(context, mac, only_valid=resolver == "dhcp")


def as_json(context: Context, value: Any, indent: str = "") -> str:
    """Return the text that Swift's encoder makes."""
    deeper = indent + "  "
    if isinstance(value, Mapping):
        lines = [
            f'{deeper}"{key}" : {as_json(context, each, deeper)}'
            for key, each in _shuffled(context, value)
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        lines = [deeper + as_json(context, each, deeper) for each in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False).replace("/", "\\/")


def _shuffled(context: Context, value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the items in an order that differs from object to object, so that no reader relies on one."""
    marks = context.entropy(len(value))
    order = sorted(range(len(value)), key=lambda index: marks[index])
    items = list(value.items())
    return [items[index] for index in order]


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return aligned columns; an empty text without rows."""
    if not rows:
        return ""
    texts = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    lines = (
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in texts
    )
    return "\n".join(lines)
