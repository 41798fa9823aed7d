"""loginwindow of a simulated Mac: who is logged in at the console, and automatic login.

As on macOS: a session ends with its loginwindow; a new one logs in the user of automatic login if FileVault is off and the password
in the file is right; a wrong one is silently replaced by a marker. At a boot this happens only with a display attached.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from bramley.sim.macos import launchd, users
from bramley.sim.macos.programs import plutil

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

TARGET = f"{launchd.SYSTEM}/{launchd.LOGINWINDOW}"
AGENTS = "Library/LaunchAgents"
AUTO_LOGIN_USER = "autoLoginUser"


def restart(mac: Mac, state: dict[str, Any]) -> None:
    """Restart loginwindow: the session ends, and automatic login is tried after `login_seconds`."""
    log_out(mac, state)
    console = state["console"]
    console["kicked_count"] = console.get("kicked_count", 0) + 1
    schedule_login(mac, state)


def schedule_login(mac: Mac, state: dict[str, Any]) -> None:
    """Schedule automatic login."""
    state["console"]["login_at"] = mac.now() + state["settings"]["login_seconds"]


def log_out(mac: Mac, state: dict[str, Any]) -> None:
    """End the session at the console and all that runs in it."""
    console = state["console"]
    console.pop("login_at", None)
    if console["user"] is None:
        return
    launchd.end_domain(mac, state, f"gui/{users.uid_of(state, console['user'])}")
    console["user"] = None
    state["processes"] = []


def next_event_at(state: Mapping[str, Any]) -> float:
    """Return the time of the scheduled automatic login."""
    return float(state["console"].get("login_at", inf))


def run_due_events(mac: Mac, state: dict[str, Any]) -> None:
    """Try automatic login."""
    state["console"].pop("login_at")
    name = auto_login_user(mac)
    if name not in state["users"] or state["filevault"]:
        return
    password = _password(mac)
    if password is None:
        return
    if users.is_password(state, name, password):
        log_in(mac, state, name)
    else:
        _write_rejection_marker(mac)


def log_in(mac: Mac, state: dict[str, Any], name: str) -> None:
    """Start a session of this user, and load its launch agents."""
    state["console"].update({"user": name, "session_at": mac.now()})
    domain = f"gui/{users.uid_of(state, name)}"
    for folder in (f"/{AGENTS}", f"{users.home_of(state, name)}/{AGENTS}"):
        launchd.load_folder(mac, state, domain, folder)


def auto_login_user(mac: Mac) -> str:
    """Return the user of automatic login from the preferences; empty if there is none."""
    from bramley.api.names import host

    preferences = plutil.read_dict(mac, f"{host.LOGINWINDOW_DEFAULTS}.plist") or {}
    return str(preferences.get(AUTO_LOGIN_USER, ""))


def _password(mac: Mac) -> str | None:
    """Return the password of automatic login; None if there is none, or the marker of a wrong one."""
    from bramley.api.names import host
    from bramley.host import kcpassword

    content = mac.files.read(host.KCPASSWORD)
    if content is None or kcpassword.is_rejected(content):
        return None
    return kcpassword.decode(content[: kcpassword.MAX_FILE_BYTES]).reveal()


def _write_rejection_marker(mac: Mac) -> None:
    from bramley.api.names import host, machines
    from bramley.host import kcpassword

    plain = machines.SEALED.encode().ljust(len(kcpassword.KEY), b"\0")
    marker = bytes(byte ^ key for byte, key in zip(plain, kcpassword.KEY, strict=True))
    mac.files.write(host.KCPASSWORD, marker, mode=0o600)
