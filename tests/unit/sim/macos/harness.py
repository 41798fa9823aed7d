"""Bare Macs for the tests of the model, with a manual clock."""

from __future__ import annotations

import asyncio
import plistlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bramley.base.secret import Secret
from bramley.host import kcpassword
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Faults
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests.virtual_time import VirtualClock

PASSWORD = Settings().password
LOGINWINDOW = "system/com.apple.loginwindow"


class ManualClock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class MacHarness:
    """A bare Mac with its clock, and shortcuts for tests."""

    def __init__(self, root: Path, *, can_chown: bool | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.mac = Mac.create(
            root / "mac", settings=Settings(**settings), clock=self.clock, can_chown=can_chown
        )

    def run(
        self, *argv: str, user: str = "m1", stdin: str = "", on_terminal: bool = False
    ) -> Result:
        return self.mac.run(Call(argv, user, stdin.encode(), on_terminal=on_terminal))

    def as_root(self, *argv: str) -> Result:
        return self.run(*argv, user="root")

    def plist(self, path: str, content: dict[str, Any], **kept: Any) -> None:
        self.mac.files.write(path, plistlib.dumps(content), **kept)

    def daemon(self, label: str, program: str = "/usr/local/bin/work", **more: Any) -> str:
        """Write the property list of a daemon and its program, and return its path."""
        self.program(program)
        path = f"/Library/LaunchDaemons/{label}.plist"
        self.plist(path, {"Label": label, "ProgramArguments": [program], "RunAtLoad": True, **more})
        return path

    def program(self, path: str) -> None:
        if not path.startswith(("/usr/bin", "/sbin", "/bin")):
            self.mac.files.make_folder(path.rpartition("/")[0])
            self.mac.files.write(path, b"#!/bin/sh\n", mode=0o755)

    def set_up_login(self, password: str = PASSWORD, *, user: str = "m1") -> None:
        self.plist("/Library/Preferences/com.apple.loginwindow.plist", {"autoLoginUser": user})
        self.mac.files.write("/etc/kcpassword", kcpassword.encode(Secret(password)), mode=0o600)

    def log_in(self) -> None:
        """Start a session by restarting loginwindow."""
        self.set_up_login()
        assert self.as_root("launchctl", "kickstart", "-k", LOGINWINDOW).code == 0
        self.clock.advance(3)
        assert self.mac.state["console"]["user"] == "m1"

    def allow_sudo(self) -> None:
        self.mac.files.write(
            "/etc/sudoers.d/m1-nopasswd", b"m1 ALL=(ALL) NOPASSWD: ALL\n", mode=0o440
        )


def connected(
    root: Path, *, faults: Faults | None = None, sudo: bool = True, **settings: Any
) -> ModelConnection:
    """Return a connection to a bare Mac under the running loop's virtual time, by default with passwordless sudo."""
    clock = VirtualClock(asyncio.get_running_loop())
    mac = Mac.create(root / "mac", settings=Settings(**settings), clock=clock)
    if sudo:
        mac.files.write("/etc/sudoers.d/m1-nopasswd", b"m1 ALL=(ALL) NOPASSWD: ALL\n", mode=0o440)
    return ModelConnection(mac, clock=clock, faults=faults)
