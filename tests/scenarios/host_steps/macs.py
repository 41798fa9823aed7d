"""Macs in various states, for tests of automatic login and the preparation."""

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
from tests.unit.host.steps.interruption import PASSWORD, MacTemplate

VM = {"pid": 4711, "command": "/usr/local/lib/tart.app/Contents/MacOS/tart run vm-1 --no-graphics"}
_SERVICE = "com.apple.Virtualization.VirtualMachine"
VM_OF_ANOTHER = {
    "pid": 4712,
    "command": f"/System/Library/Frameworks/Virtualization.framework/XPCServices/{_SERVICE}.xpc/Contents/MacOS/{_SERVICE}",
    "user": "other",
}
REJECTED = kcpassword.MARKER + b"\xa3\xb9\x1f"


def steps(password: str | None = PASSWORD) -> list[Step]:
    secret = None if password is None else Secret(password)
    return [Sudo("m1", secret), AutoLogin("m1", secret)]


def changing(change: Callable[[dict[str, Any]], object]) -> Callable[[Mac], None]:
    """Return a function that changes the state of a Mac."""

    def apply(mac: Mac) -> None:
        with mac.change() as state:
            change(state)

    return apply


def reject_password(mac: Mac) -> None:
    """Replace the password by the marker, as macOS does at a login with a wrong one."""
    mac.files.write(host.KCPASSWORD, REJECTED, mode=0o600)


def reboot(mac: Mac) -> None:
    """Reboot the Mac at once."""
    with mac.change() as state:
        state["settings"]["boot_seconds"] = 0
    mac.reboot()


def reboot_and_reject_password(mac: Mac) -> None:
    """Reboot the Mac, and mark the password of its next login as rejected."""
    reboot(mac)
    reject_password(mac)


def loginwindow_restarts(connection: ModelConnection) -> int:
    return int(connection.mac.state["console"].get("kicked_count", 0))


def session(connection: ModelConnection) -> str | None:
    user = connection.mac.state["console"]["user"]
    return None if user is None else str(user)


def is_check(command: Command) -> bool:
    return isinstance(command, Run) and command.argv[0] == "dscl"


async def make_mac(
    root: Path,
    *before: Step,
    settings: Settings | None = None,
    change: Callable[[Mac], None] = lambda _: None,
) -> ModelConnection:
    return (await MacTemplate.make(root, *before, settings=settings, change=change)).copy("mac")
