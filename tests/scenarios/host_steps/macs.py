"""Macs that people and macOS have done something to, for stories of host steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bramley.api.names import host
from bramley.base.secret import Secret
from bramley.host import kcpassword
from bramley.host.commands import Command, Run
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.sudo import Sudo
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests.unit.host.steps.cutting import PASSWORD, Scene

VM = {"pid": 4711, "command": "/usr/local/lib/tart.app/Contents/MacOS/tart run vm-1 --no-graphics"}
_SERVICE = "com.apple.Virtualization.VirtualMachine"
VM_OF_ANOTHER = {
    "pid": 4712,
    "command": f"/System/Library/Frameworks/Virtualization.framework/XPCServices/{_SERVICE}.xpc/Contents/MacOS/{_SERVICE}",
    "user": "somebody",
}
SEALED = kcpassword.MARKER + b"\xa3\xb9\x1f"


def steps(password: str | None = PASSWORD) -> list[Step]:
    secret = None if password is None else Secret(password)
    return [Sudo("m1", secret), AutoLogin("m1", secret)]


def changing(change: Callable[[dict[str, Any]], object]) -> Callable[[Mac], None]:
    """Return what changes a Mac's state."""

    def changed(mac: Mac) -> None:
        with mac.change() as state:
            change(state)

    return changed


def sealed(mac: Mac) -> None:
    """Let macOS have sealed the password, as it does at a login, whenever that is."""
    mac.files.write(host.KCPASSWORD, SEALED, mode=0o600)


def reboot(mac: Mac) -> None:
    """Let the Mac have been restarted."""
    with mac.change() as state:
        state["settings"]["boot_seconds"] = 0
    mac.reboot()


def restarted_and_sealed(mac: Mac) -> None:
    """Let the Mac have been restarted, and the password of its next login be sealed."""
    reboot(mac)
    sealed(mac)


def kicks(line: ModelConnection) -> int:
    return int(line.mac.state["console"].get("kicked_count", 0))


def session(line: ModelConnection) -> str | None:
    user = line.mac.state["console"]["user"]
    return None if user is None else str(user)


def is_check(command: Command) -> bool:
    return isinstance(command, Run) and command.argv[0] == "dscl"


async def a_mac(
    root: Path,
    *before: Step,
    settings: Settings | None = None,
    change: Callable[[Mac], None] = lambda _: None,
) -> ModelConnection:
    return (await Scene.make(root, *before, settings=settings, change=change)).copy("mac")
