"""tart of a Mac in process, as far as a bootstrap asks: whether it answers, and with which version.

Running VMs is the simulated tart's matter, which lies in the bundle where a Mac has its own root.
"""

from __future__ import annotations

from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import brought, refusing


def tart(mac: Mac, call: Call) -> Said:
    """Tell the version of the bundle that is started."""
    try:
        path = brought.started(mac, call)
    except brought.Missing as missing:
        return missing.answer
    if call.argv[1:] != ("--version",):
        return refusing.not_modelled(call)
    version = brought.version(mac, path)
    return Said(out=f"{version}\n") if version else Said(137, err="Killed: 9\n")
