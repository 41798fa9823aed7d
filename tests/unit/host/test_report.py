"""The text of a plan: one line per command, diffs of written files, and no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.secret import Secret
from bramley.host import loginwindow, report
from bramley.host.artifacts import Artifact
from bramley.host.commands import (
    Command,
    Folder,
    Link,
    Reboot,
    Remove,
    Rename,
    Run,
    RunProbe,
    Seal,
    Stream,
    Wait,
    Write,
)

TART = Artifact(
    name="tart", version="2.32.1", path=Path("tart.tar.gz"), size=22_000_000, sha256="0" * 64
)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            Run(argv=("scutil", "--set", "ComputerName", "a b"), purpose="p", as_root=True),
            "run scutil --set ComputerName 'a b' as root",
        ),
        (
            Write(path="/etc/x", content=b"", purpose="p", mode=0o600),
            "write /etc/x (0600, root:wheel)",
        ),
        (Stream(artifact=TART, path="/t", purpose="p"), "upload tart 2.32.1 (22.0 MB) to /t"),
        (Folder(path="/opt", purpose="p", owner="m1:staff"), "folder /opt (0755, m1:staff)"),
        (Link(path="/opt/current", target="1", purpose="p"), "link /opt/current to 1"),
        (Rename(path="/a", to="/b", purpose="p"), "rename /a to /b"),
        (Seal(path="/a", purpose="p"), "seal /a"),
        (Remove(path="/a", purpose="p"), "remove /a"),
        (
            Wait(probe=RunProbe(("launchctl", "print", "gui/501")), purpose="p"),
            "wait until launchctl print gui/501 succeeds",
        ),
        (
            loginwindow.wait_for_session(501),
            "wait until launchctl print gui/501 as root succeeds and prints 'session = Aqua'",
        ),
        (
            Wait(probe=RunProbe(("pgrep", "x")), purpose="p", code=1),
            "wait until pgrep x ends with code 1",
        ),
        (Reboot(purpose="p"), "reboot"),
    ],
)
def test_each_command_is_described_in_one_line(command: Command, text: str) -> None:
    assert report.describe(command) == text


def test_write_is_shown_as_a_diff() -> None:
    command = Write(path="/etc/x", content=b"a\nc\n", purpose="p", before=b"a\nb\n")
    assert list(report.diff(command)) == ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]


def test_secret_is_hidden_and_binary_content_is_counted() -> None:
    hidden = Write(path="/etc/x", content=Secret("canary"), purpose="p", before=b"canary-old")
    assert list(report.diff(hidden)) == ["+[hidden]"]
    binary = Write(path="/etc/x", content=b"\0\1", purpose="p")
    assert list(report.diff(binary)) == ["+(2 bytes of binary data)"]
    assert "canary" not in repr(hidden)


def test_long_diff_is_truncated() -> None:
    command = Write(path="/etc/x", content=b"line\n" * 500, purpose="p")
    lines = list(report.diff(command))
    assert lines[-1] == "… and 441 lines more"
