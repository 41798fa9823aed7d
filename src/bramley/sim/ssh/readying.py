"""A simulated Mac that somebody has prepared already: sudo asks for no password, and its user is logged in at the console."""

from __future__ import annotations

from bramley.api.names import host
from bramley.base.secret import Secret
from bramley.host import kcpassword
from bramley.sim.macos.call import Call
from bramley.sim.macos.mac import Mac


def make_ready(mac: Mac) -> None:
    """Do by hand what preparing a Mac does; done twice it changes nothing more."""
    user, password = mac.state["settings"]["user"], mac.state["settings"]["password"]
    line = f"{user} ALL=(ALL) NOPASSWD: ALL\n"
    mac.files.write(host.sudoers(user), line.encode(), mode=0o440)
    mac.files.write(host.KCPASSWORD, kcpassword.encode(Secret(password)), mode=0o600)
    preferences = host.LOGINWINDOW_DEFAULTS
    for words in (
        ("defaults", "write", preferences, "autoLoginUser", user),
        ("launchctl", "kickstart", "-k", "system/com.apple.loginwindow"),
    ):
        said = mac.run(Call(words, "root"))
        if said.code:
            raise RuntimeError(f"{' '.join(words)}: {said.err}")
