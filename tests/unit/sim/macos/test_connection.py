"""The in-process connection to a simulated Mac: the effects of commands."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
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
    Stream,
    Write,
)
from bramley.sim.macos import faults
from bramley.sim.macos.connection import ModelConnection
from tests.unit.sim.macos.harness import LOGINWINDOW, PASSWORD, connected

WRITE = Write(path="/opt/file", content=b"new", purpose="write a file")
KICKSTART = Run(
    argv=("launchctl", "kickstart", "-k", LOGINWINDOW), purpose="restart loginwindow", as_root=True
)
SESSION = RunProbe(("launchctl", "print", "gui/501"), as_root=True)


def an_artifact(tmp_path: Path, content: bytes = b"x" * 300_000) -> Artifact:
    path = tmp_path / "artifact"
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return Artifact(name="a", version="1", path=path, size=len(content), sha256=digest)


async def failing(connection: ModelConnection, command: Command) -> str:
    with pytest.raises(errors.CommandFailed) as error:
        await connection.execute(command)
    return str(error.value)


async def test_file_gets_content_owner_and_mode_at_once(tmp_path: Path) -> None:
    connection = connected(tmp_path)

    await connection.execute(
        Write(path="/opt/f", content=Secret("s"), purpose="p", mode=0o600, owner="m1:staff")
    )

    files = connection.mac.files
    assert files.read("/opt/f") == b"s"
    assert (files.mode("/opt/f"), files.owner("/opt/f")) == (0o600, "m1:staff")
    assert files.names("/opt") == ["f"]


async def test_file_that_its_check_does_not_accept_is_not_written(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    await connection.execute(WRITE)

    message = await failing(
        connection,
        Write(path="/opt/file", content=b"no list", purpose="p", check=("plutil", "-lint", "{}")),
    )

    assert "plutil does not accept the new file" in message
    assert connection.mac.files.read("/opt/file") == b"new"
    assert connection.mac.files.names("/opt") == ["file"]


async def test_check_sees_the_whole_new_file(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    rule = b"m1 ALL=(ALL) NOPASSWD: ALL\n"

    await connection.execute(
        Write(path="/etc/sudoers.d/x", content=rule, purpose="p", check=("visudo", "-cf", "{}"))
    )

    assert connection.mac.files.read("/etc/sudoers.d/x") == rule


async def test_write_needs_a_folder_and_replaces_none(tmp_path: Path) -> None:
    connection = connected(tmp_path)

    missing = await failing(connection, Write(path="/no/f", content=b"", purpose="p"))
    taken = await failing(connection, Write(path="/opt", content=b"", purpose="p"))

    assert "the folder /no does not exist" in missing
    assert "/opt is a folder" in taken


async def test_owner_who_does_not_exist_fails_the_command(tmp_path: Path) -> None:
    connection = connected(tmp_path)

    message = await failing(
        connection, Write(path="/opt/f", content=b"", purpose="p", owner="x:staff")
    )

    assert "illegal user name" in message
    assert connection.mac.files.names("/opt") == []


async def test_nothing_is_changed_without_sudo(tmp_path: Path) -> None:
    connection = connected(tmp_path, sudo=False)
    before = connection.mac.snapshot()
    commands: list[Command] = [
        WRITE,
        Folder(path="/opt/d", purpose="p"),
        Link(path="/opt/l", target="x", purpose="p"),
        Rename(path="/etc/pf.conf", to="/etc/pf", purpose="p"),
        Remove(path="/etc/pf.conf", purpose="p"),
        Stream(artifact=an_artifact(tmp_path), path="/opt/a", purpose="p"),
        Reboot(purpose="p"),
        KICKSTART,
    ]

    for command in commands:
        assert "sudo: a password is required" in await failing(connection, command)

    assert connection.mac.snapshot() == before
    assert connection.done == []


async def test_command_may_have_the_sudo_password(tmp_path: Path) -> None:
    connection = connected(tmp_path, sudo=False)

    await connection.execute(
        Write(path="/opt/f", content=b"c", purpose="p", sudo_password=Secret(PASSWORD))
    )
    await connection.execute(
        Run(
            argv=("cat",),
            purpose="p",
            as_root=True,
            sudo_password=Secret(PASSWORD),
            stdin=b"for cat",
        )
    )

    assert connection.mac.files.read("/opt/f") == b"c"


async def test_wrong_password_is_tried_once_and_not_shown(tmp_path: Path) -> None:
    connection = connected(tmp_path, sudo=False)
    command = Write(path="/opt/f", content=b"c", purpose="p", sudo_password=Secret("canary"))

    for _ in range(3):
        with pytest.raises(errors.Unauthorized, match="does not accept this password") as error:
            await connection.execute(command)
        assert "canary" not in str(error.value)

    assert connection.mac.state["users"]["m1"]["wrong_count"] == 1


async def test_program_never_gets_a_password_that_sudo_does_not_require(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    command = Run(
        argv=("dscl", ".", "-authonly", "m1"),
        purpose="p",
        as_root=True,
        sudo_password=Secret("wrong"),
        stdin=f"{PASSWORD}\n".encode(),
    )

    await connection.execute(command)


async def test_output_of_a_failed_program_is_bounded_and_without_secrets(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    with connection.mac.change() as state:
        state["answers"]["chatty"] = (7, "", "canary " + "x" * 9000)
    connection.mac.files.make_folder("/usr/local/bin")
    connection.mac.files.write("/usr/local/bin/chatty", b"", mode=0o755)

    message = await failing(
        connection, Run(argv=("chatty",), purpose="let it talk", stdin=Secret("canary"))
    )

    assert message.startswith("m1@mac: let it talk: failed with code 7: …")
    assert "canary" not in message
    assert len(message) < 700


async def test_other_codes_may_be_accepted(tmp_path: Path) -> None:
    connection = connected(tmp_path)

    await connection.execute(Run(argv=("false",), purpose="p", accepted_codes=(0, 1)))

    assert "failed with code 1" in await failing(connection, Run(argv=("false",), purpose="p"))


async def test_exit_code_of_sudo_itself_is_never_accepted(tmp_path: Path) -> None:
    connection = connected(tmp_path, sudo=False)

    message = await failing(
        connection, Run(argv=("false",), purpose="p", as_root=True, accepted_codes=(0, 1))
    )

    assert "sudo: a password is required" in message


async def test_password_is_typed_at_the_prompt(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    argv = ("dscl", ".", "-authonly", "m1")

    await connection.execute(
        Run(argv=argv, purpose="p", prompt="Password:", stdin=Secret(PASSWORD))
    )
    message = await failing(
        connection, Run(argv=argv, purpose="p", prompt="Password:", stdin=Secret("canary"))
    )

    assert "failed with code 10: <dscl_cmd> DS Error: -14090 (eDSAuthFailed)" in message


async def test_artifact_arrives_whole(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    artifact = an_artifact(tmp_path)

    await connection.execute(Stream(artifact=artifact, path="/opt/a", purpose="p", mode=0o755))

    assert connection.mac.files.digest("/opt/a") == artifact.sha256
    assert connection.mac.files.mode("/opt/a") == 0o755
    assert connection.mac.files.names("/opt") == ["a"]


async def test_corrupted_artifact_is_not_kept(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.faults.at(0, faults.Garble())

    message = await failing(
        connection, Stream(artifact=an_artifact(tmp_path), path="/opt/a", purpose="p")
    )

    assert "the received bytes differ from those that were sent" in message
    assert connection.mac.files.names("/opt") == []


async def test_changed_artifact_file_is_not_sent(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    artifact = an_artifact(tmp_path)
    artifact.path.write_bytes(b"short")

    with pytest.raises(errors.BadConfiguration, match="artifact"):
        await connection.execute(Stream(artifact=artifact, path="/opt/a", purpose="p"))

    assert connection.mac.files.names("/opt") == []


async def test_folders_and_links_are_made_renamed_and_removed(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    files = connection.mac.files

    await connection.execute(Folder(path="/opt/a/b", purpose="p", mode=0o700, owner="m1:staff"))
    await connection.execute(Link(path="/opt/current", target="a", purpose="p"))
    await connection.execute(Link(path="/opt/current", target="a/b", purpose="p"))
    assert files.target("/opt/current") == "a/b"
    assert (files.mode("/opt/a/b"), files.owner("/opt/a/b")) == (0o700, "m1:staff")

    await connection.execute(Rename(path="/opt/a", to="/opt/c", purpose="p"))
    await connection.execute(Remove(path="/opt/current", purpose="p"))
    await connection.execute(Remove(path="/opt/current", purpose="p"))
    assert files.names("/opt") == ["c"]
    assert len(connection.done) == 6


async def test_rename_does_not_replace_a_folder(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    await connection.execute(Folder(path="/opt/a", purpose="p"))
    await connection.execute(Link(path="/opt/link", target="/opt/a", purpose="p"))
    await connection.execute(Folder(path="/opt/b", purpose="p"))

    for taken in ("/opt/a", "/opt/link"):
        message = await failing(connection, Rename(path="/opt/b", to=taken, purpose="p"))
        assert f"{taken} is a folder" in message
