"""Probes that several steps share: the boot session, and whether VMs run.

Running VMs are found in the process table, not in a record: a record knows only its own VMs, and a builder creates images in VMs
that belong to no Pod. `tart list` knows all, but it deletes leftovers of interrupted pulls, and a probe must change nothing.
"""

from __future__ import annotations

from datetime import timedelta

from bramley.host.commands import RunProbe, Wait
from bramley.host.facts import Facts

BOOT_SESSION = RunProbe(("sysctl", "-n", "kern.bootsessionuuid"))
# The process of Tart and the one in which macOS runs each VM. The brackets keep pgrep from matching its own arguments. For processes of
# other users macOS may show only the name, truncated to 15 or 16 characters. Not as root: a refused sudo would look like no VM.
_VM_PATTERN = r"[t]art run |com\.apple\.[V]irtualization\.VirtualMachine|^com\.apple\.[V]irtua?$"
RUNNING_VMS = RunProbe(("pgrep", "-f", _VM_PATTERN), max_bytes=4096)
_NO_MATCH = 1


def boot_session(facts: Facts) -> str:
    """Return the id of the current boot; empty if unknown. Unlike the boot time, it does not change when the clock is set."""
    result = facts.result(BOOT_SESSION)
    return result.text if result.code == 0 else ""


def vms_may_run(facts: Facts) -> bool:
    """Return whether VMs run; a probe without an answer counts as yes."""
    return facts.result(RUNNING_VMS).code != _NO_MATCH


def require_no_vms() -> Wait:
    """Return the command that fails if a VM has started since the plan was computed; it must directly precede what would end VMs."""
    return Wait(
        probe=RUNNING_VMS,
        code=_NO_MATCH,
        purpose="check that no VM has started since",
        timeout=timedelta(seconds=5),
    )
