from __future__ import annotations

import pytest

from bramley.agent.host import HostProcess
from bramley.agent.platform import system

SERVICE = "/System/Library/Frameworks/Virtualization.framework/Versions/A/XPCServices/com.apple.Virtualization.VirtualMachine.xpc/Contents/MacOS/com.apple.Virtualization.VirtualMachine"

HOLDING = [("/usr/local/bin/tart", "run", "vm", "--no-graphics"), ("tart", "run", "vm"), (SERVICE,)]
OTHERS = [
    (),
    ("tart", "list"),
    ("tart",),
    ("vi", "tart", "run"),
    ("grep", "tart run vm"),
    ("/bin/sh", "-c", "tart run vm"),
    ("/bin/sh", "/lib/supervisor.sh", "/var/lib/runs/vm", "/usr/local/bin/tart", "run", "vm"),
    ("start", "run", "vm"),
    ("python3",),
]


@pytest.mark.parametrize("argv", HOLDING)
def test_process_that_runs_a_vm_is_recognised_by_its_arguments(argv: tuple[str, ...]) -> None:
    assert system.guest_processes_of([HostProcess(7, argv)]) == [HostProcess(7, argv)]


@pytest.mark.parametrize("argv", OTHERS)
def test_other_processes_are_not_recognised(argv: tuple[str, ...]) -> None:
    assert system.guest_processes_of([HostProcess(7, argv)]) == []


@pytest.mark.parametrize(
    "interpreter", [("/bin/sh",), ("/opt/python3.11", "-ISE"), ("bash", "-e", "-u")]
)
def test_script_is_recognised_by_its_own_arguments(interpreter: tuple[str, ...]) -> None:
    argv = (*interpreter, "/sim/bin/tart", "run", "vm")

    assert system.guest_processes_of([HostProcess(7, argv)]) == [
        HostProcess(7, ("/sim/bin/tart", "run", "vm"))
    ]
