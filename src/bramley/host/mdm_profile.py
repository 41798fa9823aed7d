"""The configuration profile for Macs with MDM: the settings of the steps that such a profile can contain.

Types and keys are those of Apple's published schemas; the values are those of the steps. There is no automatic login in it: its
payload needs the user's password, and without it macOS might replace the one that `prepare` has stored. Local networks have no
payload of their own, so their list is written as managed preferences, which no Mac has confirmed to read. UUIDs are derived from the
content, so the same release writes the same bytes.
"""

from __future__ import annotations

import plistlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.parsers.expat import ExpatError

from bramley.api.names import host
from bramley.host import grammar
from bramley.host.defaults import Default
from bramley.host.steps import local_network, sleep, updates

MAC = 5
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, host.MDM_PROFILE)
_POWER_SOURCES = ("desktop.ACPower", "portable.ACPower", "portable.BatteryPower")
# The names of pmset's timers in the payload.
_TIMERS = {
    "sleep": "System Sleep Timer",
    "displaysleep": "Display Sleep Timer",
    "disksleep": "Disk Sleep Timer",
}
_PREFERENCES = "com.apple.ManagedClient.preferences"
# No step sets these: they only disable buttons and menus.
_LOGIN_WINDOW = {
    "SleepDisabled": True,
    "LogOutDisabledWhileLoggedIn": True,
    "DisableScreenLockImmediate": True,
}
_UNTRIED = "Local networks that programs may reach. Untried: it is unknown whether macOS reads this list from managed preferences."


def render(node: str = "") -> bytes:
    """Return the profile; with the name of a Node it is for that Mac alone, otherwise for all."""
    if node:
        grammar.require("the configuration profile", grammar.NODE_NAME.check("node_name", node))
    identifier = f"{host.MDM_PROFILE}.{node}" if node else host.MDM_PROFILE
    profile = {
        "PayloadType": "Configuration",
        "PayloadVersion": 1,
        "PayloadIdentifier": identifier,
        "PayloadDisplayName": f"Mac host {node}" if node else "Mac hosts",
        "PayloadDescription": "Keeps a Mac that runs virtual machines awake, logged in and at its macOS version.",
        "PayloadScope": "System",
        "TargetDeviceType": MAC,
        "PayloadContent": [*_payloads(identifier)],
    }
    return plistlib.dumps(_with_uuid(profile))


def is_ours(content: bytes) -> bool:
    """Return whether this is a profile that `render` wrote, for any Mac."""
    try:
        identifier = plistlib.loads(content)["PayloadIdentifier"]
    # plistlib does not wrap the errors of its parsers.
    except (ExpatError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    return f"{identifier}.".startswith(f"{host.MDM_PROFILE}.")


def _payloads(identifier: str) -> Iterator[dict[str, Any]]:
    addresses = {key: [*local_network.NETWORKS] for key in local_network.KEYS}
    contents: list[tuple[str, str, str, Mapping[str, Any]]] = [
        ("energy", "com.apple.MCX", "Sleep off.", _energy()),
        # Automatic login is impossible with FileVault.
        ("filevault", "com.apple.MCX", "FileVault stays off.", {"dontAllowFDEEnable": True}),
        *(
            ("updates", domain, "Automatic updates off.", values)
            for domain, values in _by_domain(updates.SETTINGS).items()
        ),
        ("loginwindow", "com.apple.loginwindow", "The user stays logged in.", _LOGIN_WINDOW),
        (
            "session",
            _PREFERENCES,
            "No screen lock and no logout.",
            _forced(_by_domain(sleep.SETTINGS)),
        ),
        (
            "local-network",
            _PREFERENCES,
            _UNTRIED,
            _forced({host.LOCAL_NETWORK_DEFAULTS: addresses}),
        ),
    ]
    for name, payload_type, description, content in contents:
        yield _with_uuid(
            {
                **content,
                "PayloadType": payload_type,
                "PayloadVersion": 1,
                "PayloadIdentifier": f"{identifier}.{name}",
                "PayloadDisplayName": f"Mac host: {name}",
                "PayloadDescription": description,
            }
        )


def _energy() -> dict[str, Any]:
    timers = {_TIMERS[name]: 0 for name in sleep.NEVER}
    return {f"com.apple.EnergySaver.{source}": timers for source in _POWER_SOURCES}


def _by_domain(settings: Iterable[Default]) -> dict[str, dict[str, Any]]:
    """Return the values by the names of their domains, without the folder of the preferences."""
    domains: dict[str, dict[str, Any]] = {}
    for setting in settings:
        domains.setdefault(setting.domain.rpartition("/")[2], {})[setting.key] = setting.value
    return domains


def _forced(domains: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return managed preferences that users and programs cannot change."""
    return {
        "PayloadContent": {
            domain: {"Forced": [{"mcx_preference_settings": dict(values)}]}
            for domain, values in domains.items()
        }
    }


def _with_uuid(payload: dict[str, Any]) -> dict[str, Any]:
    identity = uuid.uuid5(_NAMESPACE, plistlib.dumps(payload).decode())
    return {**payload, "PayloadUUID": str(identity).upper()}
