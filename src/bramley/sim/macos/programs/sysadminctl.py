"""sysadminctl: tells of automatic login and of the screen's lock; what needs a password in its arguments is not modelled."""

from __future__ import annotations

from datetime import UTC, datetime

from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import defaults, refusing

LOGINWINDOW = "/Library/Preferences/com.apple.loginwindow.plist"
SCREENSAVER = "/Library/Preferences/com.apple.screensaver.plist"


def sysadminctl(mac: Mac, call: Call) -> Said:
    """Tell one setting; all that it says goes to stderr, as with the real one."""
    match call.argv[1:]:
        case ("-autologin", "status"):
            user = (defaults.load(mac, LOGINWINDOW) or {}).get("autoLoginUser")
            return _told(mac, f"Automatic login user: {user}" if user else "Automatic login is OFF")
        case ("-autologin", "off"):
            if not call.is_root:
                return Said(1, err="sysadminctl must be run as root\n")
            mac.files.remove("/etc/kcpassword")
            as_root = Call(("defaults", "delete", LOGINWINDOW, "autoLoginUser"), call.user)
            defaults.defaults(mac, as_root)
            return _told(mac, "Automatic login is OFF")
        case ("-screenLock", "status"):
            asks = (defaults.load(mac, SCREENSAVER) or {}).get("askForPassword", 1)
            return _told(mac, "screenLock delay is immediate" if asks else "screenLock is off")
    return refusing.not_modelled(call)


def _told(mac: Mac, said: str) -> Said:
    now = datetime.fromtimestamp(mac.now(), UTC)
    return Said(err=f"{now:%Y-%m-%d %H:%M:%S.000} sysadminctl[412:3021] {said}\n")
