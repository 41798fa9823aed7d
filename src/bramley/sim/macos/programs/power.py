"""shutdown and reboot: the Mac goes down at once, and comes back after the time that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bramley.sim.macos.call import Call, Said

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


def shutdown(mac: Mac, call: Call) -> Said:
    """Restart with `-r now`; switching off is nothing that anybody would come back from."""
    if call.argv[1:] != ("-r", "now"):
        return Said(1, err="usage: shutdown [-] [-h [-u] | -r | -s | -k] [-o [-n]] time\n")
    return _restart(mac, call)


def reboot(mac: Mac, call: Call) -> Said:
    """Restart."""
    return _restart(mac, call)


def _restart(mac: Mac, call: Call) -> Said:
    if not call.is_root:
        return Said(1, err=f"{call.argv[0]}: NOT super-user\n")
    mac.reboot()
    return Said()
