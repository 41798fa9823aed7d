"""Whether VMs run on a Mac: what must not be done to it then is asked of the process table, not of any record.

A record knows its own VMs only, and a builder bakes with VMs that no Pod asked for. `tart list` would know them all, but it sweeps
what an interrupted pull has left, and a look must change nothing.
"""

from __future__ import annotations

from datetime import timedelta

from bramley.host.commands import Look, Wait
from bramley.host.facts import Facts

# Tart's own process, and the one that macOS runs each VM in. In brackets, so that the words of this question are no match. Of another
# user's process macOS may tell no more than its name, cut off after 15 or 16 letters; asked as root, a refused sudo would look like no VM.
_PATTERN = r"[t]art run |com\.apple\.[V]irtualization\.VirtualMachine|^com\.apple\.[V]irtua?$"
PROBE = Look(("pgrep", "-f", _PATTERN), most=4096)
_NONE = 1


def may_run(seen: Facts) -> bool:
    """Tell whether VMs run; a question that got no answer counts as yes."""
    return seen.said(PROBE).code != _NONE


def none_has_started() -> Wait:
    """Return what fails if a VM has started since the look that a plan was made from; it goes right before what would end it."""
    return Wait(
        look=PROBE,
        code=_NONE,
        purpose="see that no VM has started meanwhile",
        within=timedelta(seconds=5),
    )
