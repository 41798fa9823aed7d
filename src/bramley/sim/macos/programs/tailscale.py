"""tailscale of a simulated Mac: joins a simulated tailnet and prints its state.

The daemon's state is in its state file, as with the real one: without that file, the Mac is logged out. The daemon is a job of launchd,
whose arguments have the path of the file. After a start it needs `tailnet_seconds` to connect; `up` waits for that. There is no
network: of keys only the form is checked.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import posixpath
import re
from collections.abc import Callable
from typing import Any

from bramley.sim.macos import launchd
from bramley.sim.macos.call import Call, NotModelled, Result
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import third_party

DAEMON = "com.tailscale.tailscaled"
DOMAIN = "tail0000.ts.net"
_JOB = f"{launchd.SYSTEM}/{DAEMON}"
# Tailscale's own part of the shared address space, without the resolver's network.
_FIRST, _HOW_MANY = int(ipaddress.IPv4Address("100.64.0.2")), 0x300000
_KEY = re.compile(
    r"tskey-(?P<kind>auth|client)-[A-Za-z0-9-]+(?:\?[a-z]+=[a-z]+(?:&[a-z]+=[a-z]+)*)?"
)
_TAG = re.compile(r"tag:[A-Za-z][A-Za-z0-9-]*")
_NO_DAEMON = "failed to connect to local tailscaled; it doesn't appear to be running\n"
_DENIED = "Access denied: prefs write access denied\n\nUse 'sudo tailscale up'.\n"
_FLAGS = {"reset": False, "ssh": False, "accept-routes": False, "accept-dns": True}
_VALUES = ("auth-key", "authkey", "hostname", "advertise-tags", "timeout")
_LATER = "Error: changing settings via 'tailscale up' requires mentioning all\nnon-default flags.\n"

Verb = Callable[[Mac, Call, list[str]], Result]


def tailscale(mac: Mac, call: Call) -> Result:
    """Run one command; most need the daemon."""
    path = third_party.executed_file(mac, call)
    verb, words = (call.argv[1] if call.argv[1:] else ""), list(call.argv[2:])
    if verb in {"version", "--version"} and not words:
        return Result(out=f"{third_party.version(mac, path)}\n")
    if verb not in _VERBS:
        raise NotModelled
    if launchd.pid_of(mac.state, DAEMON) is None:
        return Result(1, err=_NO_DAEMON)
    return _VERBS[verb](mac, call, words)


def tailscaled(mac: Mac, call: Call) -> Result:
    """Print the daemon's version; launchd runs the daemon."""
    return Result(out=f"{third_party.version_only(mac, call, '--version', '-version')}\n")


def login_state(mac: Mac) -> dict[str, Any] | None:
    """Return the daemon's saved state; None if the Mac is logged out."""
    try:
        state = json.loads(mac.files.read(_state_file(mac)) or b"null")
    except ValueError:
        return None
    return state if isinstance(state, dict) else None


def _up(mac: Mac, call: Call, words: list[str]) -> Result:
    options = _options(words)
    if not call.is_root:
        return Result(1, err=_DENIED)
    now = login_state(mac)
    if now is not None and not options["reset"] and _omits_settings(now, options):
        return Result(1, err=_LATER)
    tags = [tag for tag in options["advertise-tags"].split(",") if tag]
    if wrong := [tag for tag in tags if not _TAG.fullmatch(tag)]:
        return Result(1, err=f"tag: \"{wrong[0]}\": tags must start with 'tag:'\n")
    if (now is None or options["key"]) and (refused := _check_key(mac, options["key"], tags)):
        return refused
    try:
        _save(mac, options, tags)
    except OSError:
        return Result(1, err=f"write {_state_file(mac)}: no space left on device\n")
    with mac.change() as state:
        job = state["launchd"]["jobs"][_JOB]
        job["in_tailnet_count"] = job["runs_count"]
    return Result()


def _options(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {**_FLAGS, **dict.fromkeys(_VALUES, "")}
    found["named"] = []
    for word in words:
        name, sign, value = word.lstrip("-").partition("=")
        is_flag = name in _FLAGS and value in {"", "true", "false"}
        if not word.startswith("-") or not (is_flag or (name in _VALUES and sign)):
            raise NotModelled(word)
        found[name] = (value != "false") if is_flag else value
        found["named"].append(name)
    found["key"] = found["auth-key"] or found["authkey"]
    if found["ssh"]:
        raise NotModelled("--ssh")
    return found


def _omits_settings(now: dict[str, Any], options: dict[str, Any]) -> bool:
    """Return whether a setting is not mentioned, which is an error of `up`."""
    kept = {"advertise-tags": now["tags"], "accept-routes": now["accept_routes"]}
    return any(value and name not in options["named"] for name, value in kept.items())


def _check_key(mac: Mac, key: str, tags: list[str]) -> Result | None:
    """Check the form of a key; an OAuth client secret needs tags."""
    if key.startswith("file:"):
        path = key.removeprefix("file:")
        contents = mac.files.read(path)
        if contents is None:
            return Result(1, err=f"open {path}: no such file or directory\n")
        key = contents.decode("utf-8", "replace").strip()
    found = _KEY.fullmatch(key)
    if found is None:
        # No part of the key is printed.
        return Result(1, err="backend error: invalid key: unable to validate API key\n")
    if found["kind"] == "client" and not tags:
        return Result(1, err="oauth authkeys require --advertise-tags\n")
    return None


def _save(mac: Mac, options: dict[str, Any], tags: list[str]) -> None:
    name = options["hostname"] or str(mac.state["host_name"])
    saved = {"hostname": name, "tags": tags, "accept_routes": options["accept-routes"]}
    path = _state_file(mac)
    if not mac.files.is_folder(posixpath.dirname(path)):
        mac.files.make_folder(posixpath.dirname(path), mode=0o700)
    mac.files.write(path, json.dumps(saved, sort_keys=True).encode(), mode=0o600)


def _status(mac: Mac, _: Call, words: list[str]) -> Result:
    now = login_state(mac)
    if words not in ([], ["--json"], ["--json", "--peers=false"], ["--peers=false", "--json"]):
        raise NotModelled
    if words:
        return Result(out=json.dumps(_as_json(mac, now), indent=2) + "\n")
    if now is None:
        return Result(1, out="Logged out.\n")
    return Result(out=f"{address(now)}   {now['hostname']:<20} tagged-devices macOS   -\n")


def _as_json(mac: Mac, now: dict[str, Any] | None) -> dict[str, Any]:
    version = third_party.version(mac, third_party.executed_file(mac, Call(("tailscale",), "root")))
    offline = {"Version": version, "TailscaleIPs": None}
    if now is None:
        own_name = {"HostName": str(mac.state["host_name"]), "Online": False, "TailscaleIPs": None}
        return {**offline, "BackendState": "NeedsLogin", "Self": own_name}
    if _is_starting(mac):
        return {**offline, "BackendState": "Starting", "Self": {}}
    own: dict[str, Any] = {
        "HostName": now["hostname"],
        "DNSName": f"{now['hostname']}.{DOMAIN}.",
        "OS": "macOS",
        "Online": True,
        "TailscaleIPs": [address(now)],
    }
    # The real program omits an empty list.
    own.update({"Tags": now["tags"]} if now["tags"] else {})
    return {
        "Version": version,
        "BackendState": "Running",
        "TailscaleIPs": [address(now)],
        "Self": own,
        "MagicDNSSuffix": DOMAIN,
    }


def _ip(mac: Mac, _: Call, words: list[str]) -> Result:
    if words not in ([], ["-4"]):
        raise NotModelled
    now = login_state(mac)
    if now is None:
        return Result(1, err="no current Tailscale IPs; state: NeedsLogin\n")
    if _is_starting(mac):
        return Result(1, err="no current Tailscale IPs; state: Starting\n")
    return Result(out=f"{address(now)}\n")


def _logout(mac: Mac, call: Call, words: list[str]) -> Result:
    if words:
        raise NotModelled
    if not call.is_root:
        return Result(1, err="Access denied: logout access denied\n")
    mac.files.remove(_state_file(mac))
    return Result()


_VERBS: dict[str, Verb] = {"up": _up, "status": _status, "ip": _ip, "logout": _logout}


def address(now: dict[str, Any]) -> str:
    """Return the address of a Mac of this name."""
    digest = hashlib.sha256(str(now["hostname"]).encode()).digest()
    return str(ipaddress.IPv4Address(_FIRST + int.from_bytes(digest[:4]) % _HOW_MANY))


def _is_starting(mac: Mac) -> bool:
    """Return whether the running daemon has not connected yet."""
    job = launchd.find(mac.state, _JOB)
    if job is None or job.get("in_tailnet_count") == job["runs_count"]:
        return False
    seconds = float(mac.state["settings"]["tailnet_seconds"])
    return mac.now() < float(job["started_at"]) + seconds


def _state_file(mac: Mac) -> str:
    job = launchd.find(mac.state, _JOB)
    arguments = list(job["arguments"]) if job else []
    for at, word in enumerate(arguments):
        name, sign, value = word.lstrip("-").partition("=")
        if name == "state":
            return value if sign else str(arguments[at + 1])
    return "/Library/Tailscale/tailscaled.state"
