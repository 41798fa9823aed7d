"""How programs of a simulated Mac refuse: what the real one knows and the model does not is said loudly, never passed over."""

from __future__ import annotations

from bramley.sim.macos.call import Call, Said

# EX_USAGE: no program of the model uses it for anything else.
NOT_MODELLED = 64


def not_modelled(call: Call, what: str = "") -> Said:
    """Refuse a call that the real program may know."""
    told = what or " ".join(call.argv[1:]) or "a call without arguments"
    return Said(NOT_MODELLED, err=f"{call.argv[0]}: the simulated Mac does not model: {told}\n")


def needs_root(call: Call, said: str) -> Said | None:
    """Refuse in the program's own words unless root calls."""
    return None if call.is_root else Said(1, err=f"{said}\n")
