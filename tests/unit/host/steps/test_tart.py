"""Tart: installed once, and replaced only on request, on a Mac without VMs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.errors import CommandFailed, UnsupportedHost
from bramley.host import actions_runner_job, converge
from bramley.host.artifacts import Artifact
from bramley.host.steps.tart import Tart
from bramley.sim.macos import stand_ins
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import cases, fixtures

OLD, NEW = "2.32.1", "2.33.0"
BUNDLE = "/usr/local/lib/tart.app"


def version(connection: ModelConnection) -> str:
    return connection.mac.run(Call(("/usr/local/bin/tart", "--version"), "m1")).out.strip()


def broken_tart(folder: Path) -> Artifact:
    """Return a tart that does not run."""
    files = {"tart.app/Contents/MacOS/tart": b"#!/bin/sh\n"}
    packed = stand_ins.archive(files, executable=tuple(files))
    return fixtures.artifact(folder, "tart", NEW, packed)


async def test_missing_tart_is_installed(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)

    await converge.apply(connection, [Tart(fixtures.tart(tmp_path, OLD))])

    assert version(connection) == OLD
    assert [
        name for name in connection.mac.files.names("/usr/local/lib") if name != "tart.app"
    ] == []


async def test_another_version_is_not_replaced(tmp_path: Path) -> None:
    """The local network permission is granted to its signature."""
    connection = await fixtures.mac(tmp_path, Tart(fixtures.tart(tmp_path, OLD)))

    await converge.apply(connection, [Tart(fixtures.tart(tmp_path, NEW))])

    assert version(connection) == OLD
    assert connection.done == []


async def test_replacement_on_request_on_an_idle_mac(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, Tart(fixtures.tart(tmp_path, OLD)))
    step = Tart(fixtures.tart(tmp_path, NEW), replace=True)

    await converge.apply(connection, [step])

    assert version(connection) == NEW
    done = fixtures.executed(connection)
    moved_away = done.index(f"rename {BUNDLE} {BUNDLE}.before")
    checked = done.index("/usr/local/lib/.tart.incoming/tart.app/Contents/MacOS/tart --version")
    removed = done.index(f"remove {BUNDLE}.before")
    assert checked < moved_away < done.index("/usr/local/bin/tart --version") < removed
    assert connection.mac.files.names("/usr/local/lib") == ["tart.app"]


async def test_replacement_is_refused_while_vms_run(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, Tart(fixtures.tart(tmp_path, OLD)))
    fixtures.run_vms(connection.mac)

    with pytest.raises(UnsupportedHost, match=r"cannot be replaced by 2\.33\.0 while VMs run"):
        await converge.apply(connection, [Tart(fixtures.tart(tmp_path, NEW), replace=True)])

    assert version(connection) == OLD
    assert connection.done == []


async def test_replacement_waits_for_the_job_of_a_builder(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, Tart(fixtures.tart(tmp_path, OLD)))
    step = Tart(fixtures.tart(tmp_path, NEW), replace=True, is_builder=True)
    fixtures.run_job(connection.mac)

    with pytest.raises(UnsupportedHost, match="runs a job"):
        await converge.apply(connection, [step])
    assert (version(connection), connection.done) == (OLD, [])
    fixtures.run_job(connection.mac, ended=True)
    await converge.apply(connection, [step])

    assert version(connection) == NEW
    executed = fixtures.executed(connection)
    check = cases.command_text(actions_runner_job.require_no_job())
    assert executed.index(check) < executed.index(f"rename {BUNDLE} {BUNDLE}.before")


async def test_broken_replacement_is_not_installed(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, Tart(fixtures.tart(tmp_path, OLD)))

    with pytest.raises(CommandFailed, match=r"check that tart 2\.33\.0 runs"):
        await converge.apply(connection, [Tart(broken_tart(tmp_path), replace=True)])

    assert version(connection) == OLD


async def test_foreign_tart_is_kept(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    connection.mac.files.make_folder("/usr/local/bin")
    foreign = stand_ins.program("tart", "2.30.0")
    connection.mac.files.write("/usr/local/bin/tart", foreign, mode=0o755)

    await converge.apply(connection, [Tart(fixtures.tart(tmp_path, OLD))])

    assert connection.mac.files.read("/usr/local/bin/tart") == foreign
    assert connection.done == []


async def test_broken_tart_is_reported_and_not_replaced(tmp_path: Path) -> None:
    step = Tart(fixtures.tart(tmp_path, OLD))
    connection = await fixtures.mac(tmp_path, step)
    connection.mac.files.remove(f"{BUNDLE}/Contents/MacOS/tart")

    with pytest.raises(UnsupportedHost, match="/usr/local/bin/tart exists and does not run"):
        await converge.apply(connection, [step])


async def test_leftover_archive_is_not_used(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    connection.mac.files.make_folder("/usr/local/lib")
    older = fixtures.tart(tmp_path, "2.0.0").path.read_bytes()
    connection.mac.files.write("/usr/local/lib/.tart.incoming.tar.gz", older)

    await converge.apply(connection, [Tart(fixtures.tart(tmp_path, OLD))])

    assert version(connection) == OLD


async def test_leftovers_of_an_interrupted_run_are_removed(tmp_path: Path) -> None:
    step = Tart(fixtures.tart(tmp_path, OLD))
    connection = await fixtures.mac(tmp_path, step)
    connection.mac.files.write("/usr/local/lib/.tart.incoming.tar.gz", b"half of it")
    connection.mac.files.make_folder("/usr/local/lib/.tart.incoming/tart.app")
    connection.mac.files.make_folder(f"{BUNDLE}.before")

    await converge.apply(connection, [step])

    assert connection.mac.files.names("/usr/local/lib") == ["tart.app"]
