"""How a plan reads: a line per command, the difference of written files, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.secret import Secret
from bramley.host import showing
from bramley.host.artifacts import Artifact
from bramley.host.commands import (
    Command,
    Folder,
    Link,
    Look,
    Reboot,
    Remove,
    Rename,
    Run,
    Seal,
    Stream,
    Wait,
    Write,
)

TART = Artifact(
    name="tart", version="2.32.1", path=Path("tart.tar.gz"), size=22_000_000, sha256="0" * 64
)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            Run(argv=("scutil", "--set", "ComputerName", "a b"), purpose="p", as_root=True),
            "run scutil --set ComputerName 'a b' as root",
        ),
        (
            Write(path="/etc/x", content=b"", purpose="p", mode=0o600),
            "write /etc/x (0600, root:wheel)",
        ),
        (Stream(artifact=TART, path="/t", purpose="p"), "bring tart 2.32.1 (22.0 MB) to /t"),
        (Folder(path="/opt", purpose="p", owner="m1:staff"), "folder /opt (0755, m1:staff)"),
        (Link(path="/opt/current", target="1", purpose="p"), "link /opt/current to 1"),
        (Rename(path="/a", to="/b", purpose="p"), "rename /a to /b"),
        (Seal(path="/a", purpose="p"), "seal /a"),
        (Remove(path="/a", purpose="p"), "remove /a"),
        (
            Wait(look=Look(("launchctl", "print", "gui/501")), purpose="p"),
            "wait until launchctl print gui/501 says so",
        ),
        (Reboot(purpose="p"), "reboot"),
    ],
)
def test_each_command_is_one_line(command: Command, told: str) -> None:
    assert showing.title(command) == told


def test_a_written_file_is_shown_as_what_changes() -> None:
    command = Write(path="/etc/x", content=b"a\nc\n", purpose="p", before=b"a\nb\n")
    assert list(showing.difference(command)) == ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]


def test_a_secret_is_hidden_and_bytes_are_counted() -> None:
    hidden = Write(path="/etc/x", content=Secret("canary"), purpose="p", before=b"canary-old")
    assert list(showing.difference(hidden)) == ["+[hidden]"]
    binary = Write(path="/etc/x", content=b"\0\1", purpose="p")
    assert list(showing.difference(binary)) == ["+(2 bytes that are no text)"]
    assert "canary" not in repr(hidden)


def test_a_long_difference_ends_with_how_much_is_left() -> None:
    long = Write(path="/etc/x", content=b"line\n" * 500, purpose="p")
    shown = list(showing.difference(long))
    assert shown[-1] == "… and 441 lines more"
