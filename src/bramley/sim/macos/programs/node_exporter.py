"""node_exporter of a simulated Mac: tells its version; serving metrics is a job of launchd, which curl answers for."""

from __future__ import annotations

from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import brought, refusing


def node_exporter(mac: Mac, call: Call) -> Said:
    """Tell the version."""
    try:
        path = brought.started(mac, call)
    except brought.Missing as missing:
        return missing.answer
    if call.argv[1:] != ("--version",):
        return refusing.not_modelled(call)
    version = brought.version(mac, path) or "(unknown)"
    return Said(out=f"node_exporter, version {version} (branch: HEAD, revision: simulated)\n")
