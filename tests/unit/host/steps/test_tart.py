"""Tart: brought once, left alone ever after, and replaced only for somebody who asks, on a Mac without VMs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.errors import CommandFailed, UnsupportedHost
from bramley.host import converge
from bramley.host.artifacts import Artifact
from bramley.host.steps.tart import Tart
from bramley.sim.macos import stand_ins
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from tests.unit.host.steps import wanted

OLD, NEW = "2.32.1", "2.33.0"
BUNDLE = "/usr/local/lib/tart.app"


def version(line: ModelConnection) -> str:
    return line.mac.run(Call(("/usr/local/bin/tart", "--version"), "m1")).out.strip()


def dead(folder: Path) -> Artifact:
    """Return a tart that does not answer."""
    files = {"tart.app/Contents/MacOS/tart": b"#!/bin/sh\n"}
    packed = stand_ins.archive(files, executable=tuple(files))
    return wanted.artifact(folder, "tart", NEW, packed)


async def test_a_mac_without_tart_gets_it(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)

    await converge.apply(line, [Tart(wanted.tart(tmp_path, OLD))])

    assert version(line) == OLD
    assert [name for name in line.mac.files.names("/usr/local/lib") if name != "tart.app"] == []


async def test_another_version_is_no_reason_to_replace_it(tmp_path: Path) -> None:
    """Its signature holds the grant to the local network."""
    line = await wanted.mac(tmp_path, Tart(wanted.tart(tmp_path, OLD)))

    await converge.apply(line, [Tart(wanted.tart(tmp_path, NEW))])

    assert version(line) == OLD
    assert line.done == []


async def test_whoever_asks_gets_another_one_on_an_idle_mac(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, Tart(wanted.tart(tmp_path, OLD)))
    step = Tart(wanted.tart(tmp_path, NEW), replace=True)

    await converge.apply(line, [step])

    assert version(line) == NEW
    done = wanted.done(line)
    aside = done.index(f"rename {BUNDLE} {BUNDLE}.before")
    answered = done.index("/usr/local/lib/.tart.incoming/tart.app/Contents/MacOS/tart --version")
    gone = done.index(f"remove {BUNDLE}.before")
    assert answered < aside < done.index("/usr/local/bin/tart --version") < gone
    assert line.mac.files.names("/usr/local/lib") == ["tart.app"]


async def test_it_is_not_replaced_under_running_vms(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, Tart(wanted.tart(tmp_path, OLD)))
    wanted.run_vms(line.mac)

    with pytest.raises(UnsupportedHost, match=r"cannot be replaced by 2\.33\.0 while VMs run"):
        await converge.apply(line, [Tart(wanted.tart(tmp_path, NEW), replace=True)])

    assert version(line) == OLD
    assert line.done == []


async def test_one_that_does_not_answer_does_not_take_the_place_of_one_that_does(
    tmp_path: Path,
) -> None:
    line = await wanted.mac(tmp_path, Tart(wanted.tart(tmp_path, OLD)))

    with pytest.raises(CommandFailed, match=r"let tart 2\.33\.0 answer before it is used"):
        await converge.apply(line, [Tart(dead(tmp_path), replace=True)])

    assert version(line) == OLD


async def test_a_tart_that_others_brought_stays(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)
    line.mac.files.make_folder("/usr/local/bin")
    foreign = stand_ins.program("tart", "2.30.0")
    line.mac.files.write("/usr/local/bin/tart", foreign, mode=0o755)

    await converge.apply(line, [Tart(wanted.tart(tmp_path, OLD))])

    assert line.mac.files.read("/usr/local/bin/tart") == foreign
    assert line.done == []


async def test_one_that_was_broken_since_is_told_and_not_replaced(tmp_path: Path) -> None:
    step = Tart(wanted.tart(tmp_path, OLD))
    line = await wanted.mac(tmp_path, step)
    line.mac.files.remove(f"{BUNDLE}/Contents/MacOS/tart")

    with pytest.raises(UnsupportedHost, match="is there and does not answer"):
        await converge.apply(line, [step])


async def test_what_a_cut_left_beside_is_not_taken_for_the_archive(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)
    line.mac.files.make_folder("/usr/local/lib")
    older = wanted.tart(tmp_path, "2.0.0").path.read_bytes()
    line.mac.files.write("/usr/local/lib/.tart.incoming.tar.gz", older)

    await converge.apply(line, [Tart(wanted.tart(tmp_path, OLD))])

    assert version(line) == OLD


async def test_what_a_cut_has_left_behind_goes(tmp_path: Path) -> None:
    step = Tart(wanted.tart(tmp_path, OLD))
    line = await wanted.mac(tmp_path, step)
    line.mac.files.write("/usr/local/lib/.tart.incoming.tar.gz", b"half of it")
    line.mac.files.make_folder("/usr/local/lib/.tart.incoming/tart.app")
    line.mac.files.make_folder(f"{BUNDLE}.before")

    await converge.apply(line, [step])

    assert line.mac.files.names("/usr/local/lib") == ["tart.app"]
