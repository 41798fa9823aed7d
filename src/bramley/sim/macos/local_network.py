"""The Local Network grant of a simulated Mac: which programs reach the networks of their VMs.

A grant is given at the screen, to one code signature, and is lost with it. The list of allowed networks in the preferences needs no
click, and takes effect only at a start of the Mac; macOS has it from 15.5 on. Before 15 every program reaches all networks.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bramley.sim.macos.programs import plutil

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

# The file of root's own domain in `defaults`: macOS reads it for the whole Mac.
PREFERENCES = "/var/root/Library/Preferences/com.apple.network.local-network.plist"
PROMPT_SINCE, ALLOWLIST_SINCE = (15, 0), (15, 5)
ALLOWED = ("AllowedEthernetLocalNetworkAddresses", "AllowedWiFiLocalNetworkAddresses")


def signature(mac: Mac, path: str) -> str:
    """Return the code signature of a program or bundle, a digest of its content; empty if it does not exist."""
    if mac.files.is_file(path):
        return mac.files.digest(path)
    hasher = hashlib.sha256()
    inner = [each for each in mac.files.walk(mac.files.real(path)) if mac.files.is_file(each)]
    for each in inner:
        hasher.update(f"{each}\0{mac.files.digest(each)}\0".encode())
    return hasher.hexdigest() if inner else ""


def grant(mac: Mac, path: str) -> None:
    """Grant access to a program with its current signature, as by a click at the screen."""
    with mac.change() as state:
        state["local_network"]["granted"][path] = signature(mac, path)


def reaches(mac: Mac, path: str, address: str) -> bool:
    """Return whether a program reaches an address of a local network."""
    state = mac.state
    if _version(state) < PROMPT_SINCE:
        return True
    target = ipaddress.ip_address(address)
    if any(target in ipaddress.ip_network(each) for each in state["local_network"]["active"]):
        return True
    granted = state["local_network"]["granted"].get(path)
    return bool(granted) and granted == signature(mac, path)


def allowed_networks(mac: Mac) -> list[str]:
    """Return the networks that both lists of the preferences allow."""
    preferences = plutil.read_dict(mac, PREFERENCES) or {}
    ethernet, wifi = (_networks(preferences, key) for key in ALLOWED)
    return [each for each in ethernet if each in wifi]


def apply_preferences(mac: Mac, state: dict[str, Any]) -> None:
    """Apply the preferences."""
    is_supported = _version(state) >= ALLOWLIST_SINCE
    state["local_network"]["active"] = allowed_networks(mac) if is_supported else []


def _version(state: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(number) for number in state["settings"]["macos"].split(".")[:2])


def _networks(preferences: Mapping[str, Any], key: str) -> list[str]:
    value = preferences.get(key, [])
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
