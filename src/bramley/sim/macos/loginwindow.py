"""loginwindow of a simulated Mac: who is logged in at the console, and how automatic login gets there.

As on macOS: a session ends with its loginwindow; a new one logs in the user of automatic login if FileVault is off and the
password in the file is right; a wrong one is replaced by a marker there, and nobody is told. At a boot this happens only with a
display attached.
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


def kick(mac: Mac, state: dict[str, Any]) -> None:
    """Start loginwindow anew: the session ends, and after a while another one may come."""
    log_out(mac, state)
    console = state["console"]
    console["kicked_count"] = console.get("kicked_count", 0) + 1
    await_login(mac, state)


def await_login(mac: Mac, state: dict[str, Any]) -> None:
    """Let automatic login be tried after the time it takes."""
    state["console"]["login_at"] = mac.now() + state["settings"]["login_seconds"]


def log_out(mac: Mac, state: dict[str, Any]) -> None:
    """End the session at the console with all that runs in it."""
    console = state["console"]
    console.pop("login_at", None)
    if console["user"] is None:
        return
    launchd.end_domain(mac, state, f"gui/{users.uid_of(state, console['user'])}")
    console["user"] = None
    state["processes"] = []


def moment(state: Mapping[str, Any]) -> float:
    """Return when automatic login is to be tried."""
    return float(state["console"].get("login_at", inf))


def settle(mac: Mac, state: dict[str, Any]) -> None:
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
        _seal(mac)


def log_in(mac: Mac, state: dict[str, Any], name: str) -> None:
    """Begin a session of this user, and load the agents that belong to it."""
    state["console"].update({"user": name, "session_at": mac.now()})
    domain = f"gui/{users.uid_of(state, name)}"
    for folder in (f"/{AGENTS}", f"{users.home_of(state, name)}/{AGENTS}"):
        launchd.load_folder(mac, state, domain, folder)


def auto_login_user(mac: Mac) -> str:
    """Return whom the preferences name for automatic login; nobody if they do not."""
    from bramley.api.names import host

    preferences = plutil.read_dict(mac, f"{host.LOGINWINDOW_DEFAULTS}.plist") or {}
    return str(preferences.get(AUTO_LOGIN_USER, ""))


def _password(mac: Mac) -> str | None:
    """Return the password of the file; None if there is none, or the marker of a wrong one."""
    from bramley.api.names import host
    from bramley.host import kcpassword

    content = mac.files.read(host.KCPASSWORD)
    if content is None or kcpassword.is_rejected(content):
        return None
    return kcpassword.decode(content[: kcpassword.MAX_FILE_BYTES]).reveal()


def _seal(mac: Mac) -> None:
    from bramley.api.names import host, machines
    from bramley.host import kcpassword

    plain = machines.SEALED.encode().ljust(len(kcpassword.KEY), b"\0")
    marker = bytes(byte ^ key for byte, key in zip(plain, kcpassword.KEY, strict=True))
    mac.files.write(host.KCPASSWORD, marker, mode=0o600)
