"""Parses the output of tart: lists and facts in JSON, whose types differ between commands and releases."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import Any

from bramley.agent.tart.failures import UnreadableOutput


@dataclass(frozen=True, slots=True)
class ListedVm:
    """One row of `tart list`; local VMs by name, cached images by tag and again by digest."""

    name: str
    is_local: bool
    size_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class VmFacts:
    """The output of `tart get` for one local VM."""

    cpu: int
    memory_mb: int
    disk_gb: int = 0


_LOCAL = "local"
_MAX_QUOTED = 200


def parse_list(text: str) -> list[ListedVm]:
    """Parse `tart list --format json`."""
    rows = _json("list", text)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _unreadable("list", text)
    try:
        return [_row(row) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable("list", text) from error


def parse_get(text: str) -> VmFacts:
    """Parse `tart get --format json`."""
    row = _json("get", text)
    try:
        return VmFacts(
            cpu=int(row["CPU"]),
            memory_mb=int(row["Memory"]),
            disk_gb=int(row.get("Disk") or 0),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable("get", text) from error


def parse_ip(text: str) -> str:
    """Parse `tart ip`."""
    try:
        return str(ipaddress.IPv4Address(text.strip()))
    except ValueError as error:
        raise _unreadable("ip", text) from error


def _row(row: dict[str, Any]) -> ListedVm:
    return ListedVm(
        name=str(row["Name"]),
        is_local=str(row["Source"]).lower() == _LOCAL,
        size_gb=_parse_size(row.get("Size")),
    )


def _parse_size(value: object) -> float:
    """Return a size that may be a number or a string; a missing or invalid one is 0."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0


def _json(operation: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _unreadable(operation, text) from error


def _unreadable(operation: str, text: str) -> UnreadableOutput:
    quoted = text.strip()[:_MAX_QUOTED]
    return UnreadableOutput(operation, code=0, stderr=f"output cannot be parsed: {quoted!r}")
