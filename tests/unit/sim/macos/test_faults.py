"""Faults of connections to a simulated Mac and of the Mac itself: their effects and errors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.host.artifacts import Artifact
from bramley.host.commands import Folder, RunProbe, Stream, Write
from bramley.sim.macos import faults
from bramley.sim.macos.faults import Cut, CutPoint, Fail, Hang
from tests.unit.sim.macos.harness import connected

FIRST = Folder(path="/opt/first", purpose="first")
SECOND = Folder(path="/opt/second", purpose="second")
SIZE = 1200 * 256


def an_artifact(tmp_path: Path) -> Artifact:
    content = bytes(range(256)) * (SIZE // 256)
    path = tmp_path / "artifact"
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return Artifact(name="a", version="1", path=path, size=len(content), sha256=digest)


async def test_cut_before_a_command_prevents_it(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.faults.at(1, Cut(CutPoint.BEFORE))
    await connection.execute(FIRST)

    with pytest.raises(errors.HostUnreachable):
        await connection.execute(SECOND)

    assert connection.mac.files.names("/opt") == ["first"]
    assert connection.done == [FIRST]


async def test_cut_after_a_command_fails_the_next_call(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.faults.at(0, Cut(CutPoint.AFTER))
    await connection.execute(FIRST)

    with pytest.raises(errors.HostUnreachable):
        await connection.probe([RunProbe(("true",))])

    await connection.execute(SECOND)
    assert connection.done == [FIRST, SECOND]


async def test_lost_answer_leaves_the_command_done(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.faults.at(0, Cut(CutPoint.UNANSWERED))

    with pytest.raises(errors.HostUnreachable):
        await connection.execute(FIRST)

    assert connection.mac.files.names("/opt") == ["first"]
    assert connection.done == [FIRST]


@pytest.mark.parametrize("at_byte", [0, 1, 131_072, SIZE - 1])
async def test_cut_stream_keeps_the_old_file(tmp_path: Path, at_byte: int) -> None:
    connection = connected(tmp_path)
    connection.mac.files.write("/opt/a", b"old")
    stream = Stream(artifact=an_artifact(tmp_path), path="/opt/a", purpose="p")
    connection.faults.at(0, Cut(at_byte=at_byte))

    with pytest.raises(errors.HostUnreachable):
        await connection.execute(stream)

    assert connection.mac.files.read("/opt/a") == b"old"
    assert connection.done == []
    # What is left lies beside it, and the next try takes it away.
    assert len(connection.mac.files.names("/opt")) == 2
    await connection.execute(stream)
    assert connection.mac.files.names("/opt") == ["a"]
    assert connection.mac.files.digest("/opt/a") == stream.artifact.sha256


async def test_stream_cut_after_its_last_byte_has_arrived(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    artifact = an_artifact(tmp_path)
    connection.faults.at(0, Cut(at_byte=artifact.size))

    with pytest.raises(errors.HostUnreachable):
        await connection.execute(Stream(artifact=artifact, path="/opt/a", purpose="p"))

    assert connection.mac.files.digest("/opt/a") == artifact.sha256


async def test_probe_may_be_cut_and_may_hang(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.faults.at_probe(0, Cut(CutPoint.BEFORE))
    connection.faults.at_probe(1, Hang())

    with pytest.raises(errors.HostUnreachable):
        await connection.probe([])
    with pytest.raises(errors.TimedOut):
        await connection.probe([])
    await connection.probe([])


async def test_command_may_fail(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.faults.at(lambda command: command.purpose == "second", Fail(9, "out of luck"))
    await connection.execute(FIRST)

    with pytest.raises(errors.CommandFailed, match="second: failed with code 9: out of luck"):
        await connection.execute(SECOND)

    await connection.execute(SECOND)


async def test_faults_are_counted_over_all_connections_to_a_mac(tmp_path: Path) -> None:
    plan = faults.Faults()
    plan.at(1, Cut(CutPoint.BEFORE))
    await connected(tmp_path / "one", faults=plan).execute(FIRST)

    with pytest.raises(errors.HostUnreachable):
        await connected(tmp_path / "two", faults=plan).execute(FIRST)


async def test_full_disk_fails_the_command_and_leaves_nothing(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    faults.set_free_space(connection.mac, 1000)
    stream = Stream(artifact=an_artifact(tmp_path), path="/opt/a", purpose="p")
    write = Write(path="/opt/a", content=b"x" * 1001, purpose="p")

    for command in (stream, write):
        with pytest.raises(errors.CommandFailed, match="No space left on device"):
            await connection.execute(command)

    assert connection.mac.files.names("/opt") == []
    faults.set_free_space(connection.mac, 1_000_000)
    await connection.execute(stream)


async def test_sudo_that_refuses_fails_the_command(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    faults.refuse_sudo(connection.mac)

    with pytest.raises(errors.CommandFailed, match="m1 is not in the sudoers file"):
        await connection.execute(FIRST)


async def test_changed_host_key_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    await connection.execute(FIRST)
    faults.change_host_key(connection.mac)

    with pytest.raises(errors.HostKeyChanged):
        await connection.execute(SECOND)
    with pytest.raises(errors.HostKeyChanged):
        await connection.probe([])

    assert connection.mac.files.names("/opt") == ["first"]
    connection.accept_new_host_key()
    await connection.execute(SECOND)
