"""Tables of pf that are live: shown and changed by `pfctl -t NAME -T COMMAND`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import refusing

_MISSING = Said(255, err="pfctl: Table does not exist.\n")


def act(mac: Mac, call: Call, options: Mapping[str, str], anchor: str) -> Said:
    """Show a table, or tell whether an address is in it; changing one by hand is not modelled."""
    command, name = options.get("T", ""), options.get("t", "")
    ruleset = mac.state["pf"]["rulesets"].get(anchor)
    if command != "show" or not name:
        return refusing.not_modelled(call)
    if ruleset is None or name not in ruleset["tables"]:
        return _MISSING
    addresses = sorted(ruleset["tables"][name], key=_order)
    return Said(out="".join(f"   {one}\n" for one in addresses))


def _order(address: str) -> tuple[int, bytes]:
    bare = address.removeprefix("!").partition("/")[0]
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return 0, bare.encode()
    return found.version, found.packed
