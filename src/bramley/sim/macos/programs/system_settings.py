"""Programs that read or change settings of the system: names, sleep, updates, the clock, FileVault, restarts."""

from __future__ import annotations

from datetime import UTC, datetime

from bramley.api.names import host
from bramley.sim.macos.call import Call, Result, needs_root, not_modelled, read_file
from bramley.sim.macos.mac import Mac

NAMES = ("HostName", "LocalHostName", "ComputerName")
_SLEEP = ("sleep", "displaysleep", "disksleep", "powernap", "womp", "autorestart", "standby", "tcpkeepalive")  # fmt: skip
_SLEEP_AT_FIRST = {
    "sleep": 1, "displaysleep": 10, "disksleep": 10, "powernap": 1, "womp": 1, "autorestart": 0, "tcpkeepalive": 1,
}  # fmt: skip
# While it is off: when it is turned on.
_FILE_VAULT = {
    "": "FileVault is Off.\n",
    "restart": "FileVault is Off, but will be enabled after the next restart.\n",
    "login": "FileVault is Off.\nDeferred enablement appears to be active for user '{}'.\n",
}


def shutdown(mac: Mac, call: Call) -> Result:
    """Restart with `-r now`; a shutdown is not modelled."""
    if call.argv[1:] != ("-r", "now"):
        return Result(1, err="usage: shutdown [-] [-h [-u] | -r | -s | -k] [-o [-n]] time\n")
    return reboot(mac, call)


def reboot(mac: Mac, call: Call) -> Result:
    """Restart."""
    if not call.is_root:
        return Result(1, err=f"{call.argv[0]}: NOT super-user\n")
    mac.reboot()
    return Result()


def scutil(mac: Mac, call: Call) -> Result:
    """Print or set one of the Mac's three names."""
    match call.argv[1:]:
        case ("--get", name) if name in NAMES:
            value = _names(mac).get(name)
            return Result(out=f"{value}\n") if value else Result(1, err=f"{name}: not set\n")
        case ("--set", name, value) if name in NAMES and value:
            return _rename(mac, call, name, value)
    return not_modelled(call)


def hostname(mac: Mac, call: Call) -> Result:
    """Print the host name; setting it is not modelled."""
    name = str(_names(mac).get("HostName") or mac.state["host_name"])
    match call.argv[1:]:
        case ():
            return Result(out=f"{name}\n")
        case ("-s",):
            return Result(out=f"{name.partition('.')[0]}\n")
    return not_modelled(call)


def pmset(mac: Mac, call: Call) -> Result:
    """Print or set when the Mac sleeps."""
    match call.argv[1:]:
        case ("-g",) | ("-g", "custom"):
            return Result(out=_sleep_shown(mac, call.argv[-1]))
        case ("-a" | "-c", *pairs) if pairs:
            return _set_sleep(mac, call, pairs)
    return not_modelled(call)


def softwareupdate(mac: Mac, call: Call) -> Result:
    """Print or set whether the Mac checks for updates; there is no network to find any."""
    match call.argv[1:]:
        case ("--schedule",):
            return Result(out=_schedule(is_on=_is_update_check_on(mac, call)))
        case ("--schedule", "on" | "off" as requested):
            if refused := needs_root(call, "This operation must be run as root."):
                return refused
            with mac.change() as state:
                state["updates_scheduled"] = requested == "on"
            return Result(out=_schedule(is_on=requested == "on"))
        case ("--list" | "-l",):
            message = "Software Update Tool\n\nFinding available software\n"
            return Result(
                1, out=message, err="Can't connect to the Apple Software Update server.\n"
            )
    return not_modelled(call)


def fdesetup(mac: Mac, call: Call) -> Result:
    """Return whether FileVault is on, or off and about to be turned on; turning it on or off is not modelled."""
    is_on = bool(mac.state["filevault"])
    match call.argv[1:]:
        case ("status",):
            message = _FILE_VAULT[mac.state.get("filevault_after", "")].format(call.user)
            return Result(out="FileVault is On.\n" if is_on else message)
        case ("isactive",):
            return Result(0 if is_on else 1, out=f"{str(is_on).lower()}\n")
    return not_modelled(call)


def date(mac: Mac, call: Call) -> Result:
    """Print the time of the Mac's clock, which may be wrong; setting it is not modelled."""
    words = list(call.argv[1:])
    is_utc = words[:1] == ["-u"]
    words = words[1:] if is_utc else words
    now = datetime.fromtimestamp(mac.now(), UTC)
    if not words:
        return Result(out=f"{now:%a %b %e %H:%M:%S UTC %Y}\n")
    if len(words) != 1 or not words[0].startswith("+"):
        return not_modelled(call)
    # strftime of some systems does not know %s.
    form = words[0][1:].replace("%s", str(int(mac.now())))
    return Result(out=f"{now.strftime(form)}\n")


def dscacheutil(mac: Mac, call: Call) -> Result:
    """Accept `-flushcache`; there is no cache."""
    del mac
    return Result() if call.argv[1:] == ("-flushcache",) else not_modelled(call)


def printenv(mac: Mac, call: Call) -> Result:
    """Print one variable of the call's environment, or of the state's `environment`."""
    if len(call.argv) != 2:
        return not_modelled(call)
    value = {**mac.state.get("environment", {}), **call.environment}.get(call.argv[1])
    return Result(1) if value is None else Result(out=f"{value}\n")


def _names(mac: Mac) -> dict[str, str]:
    """Return the names that are set; a new Mac has no HostName and gets one from its network."""
    found = str(mac.state["settings"]["host_name"])
    at_first = {"LocalHostName": found.replace(".", "-"), "ComputerName": found}
    return {**at_first, **mac.state.get("names", {})}


def _rename(mac: Mac, call: Call, name: str, value: str) -> Result:
    if not call.is_root:
        return Result(1, err="SCPreferencesSetXxx() failed: Access denied\n")
    is_label = value.replace("-", "").isalnum() and value.isascii()
    if name == "LocalHostName" and not (
        is_label and len(value) <= 63 and value.strip("-") == value
    ):
        return Result(1, err="SCPreferencesSetLocalHostName() failed: Invalid argument\n")
    with mac.change() as state:
        state.setdefault("names", {})[name] = value
        if name == "HostName":
            state["host_name"] = value
    return Result()


def _sleep_shown(mac: Mac, section: str) -> str:
    values = {**_SLEEP_AT_FIRST, **mac.state.get("sleep", {})}
    head = (
        "AC Power:\n" if section == "custom" else "System-wide power settings:\nCurrently in use:\n"
    )
    return head + "".join(f" {name:<20} {value}\n" for name, value in values.items())


def _set_sleep(mac: Mac, call: Call, pairs: list[str]) -> Result:
    requested = dict(zip(pairs[::2], pairs[1::2], strict=False))
    known = {name: value for name, value in requested.items() if name in _SLEEP and value.isdigit()}
    if len(pairs) % 2 or known != requested:
        return not_modelled(call)
    if not call.is_root:
        return Result(77, err="'pmset' must be run as root...\n")
    with mac.change() as state:
        state.setdefault("sleep", {}).update({name: int(value) for name, value in known.items()})
    return Result()


def _is_update_check_on(mac: Mac, call: Call) -> bool:
    """Return whether updates are checked for; who cannot read the preferences sees the default."""
    try:
        read_file(mac, call, f"{host.SOFTWARE_UPDATE_DEFAULTS}.plist")
    except PermissionError:
        return True
    return bool(mac.state.get("updates_scheduled", True))


def _schedule(*, is_on: bool) -> str:
    return f"Automatic checking for updates is turned {'on' if is_on else 'off'}\n"
