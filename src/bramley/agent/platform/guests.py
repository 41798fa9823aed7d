"""Telling by its command line whether a process holds a VM: `tart run`, or the service that runs the guest for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bramley.agent.host import GuestProcess, HostProcess

# The service of macOS's framework: one process for each guest, and no child of tart.
GUEST_SERVICE = "com.apple.Virtualization.VirtualMachine"
_TART = "tart"
_RUN = "run"
# Programs that run another one named on their command line: tart's wrapper is a script, and so is a simulated tart.
_INTERPRETERS = ("sh", "bash", "dash", "zsh", "python")


def may_hold_vm(line: bytes) -> bool:
    """Tell by a bare command line whether the process is worth a closer look."""
    return _TART.encode() in line or GUEST_SERVICE.encode() in line


def among(processes: Iterable[HostProcess]) -> list[GuestProcess]:
    """Return those that hold a VM, without the interpreter that some of them are run by."""
    told = ((each.pid, without_interpreter(each.argv)) for each in processes)
    return [GuestProcess(pid, argv) for pid, argv in told if holds_vm(argv)]


def holds_vm(argv: Sequence[str]) -> bool:
    """Tell whether a program with this command line holds a VM."""
    program = argv[0].rpartition("/")[2] if argv else ""
    return program == GUEST_SERVICE or (program == _TART and argv[1:2] == (_RUN,))


def without_interpreter(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command line of what an interpreter runs; nothing if that is a text instead of a script."""
    if not argv or not argv[0].rpartition("/")[2].startswith(_INTERPRETERS):
        return tuple(argv)
    words = argv[1:]
    while words and words[0].startswith("-"):
        if words[0] == "-c":
            return ()
        words = words[1:]
    return tuple(words)
