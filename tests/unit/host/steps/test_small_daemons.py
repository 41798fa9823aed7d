"""Daemons of a file or two: node_exporter and the rotation of logs, and the resolver of the tailnet."""

from __future__ import annotations

import plistlib
from pathlib import Path

import pytest

from bramley.base.errors import CommandFailed, HostUnreachable
from bramley.host import converge
from bramley.host.commands import Run, Write
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.step import Step
from bramley.host.steps import log_rotation, node_exporter
from bramley.host.steps.log_rotation import LogRotation
from bramley.host.steps.node_exporter import NodeExporter
from bramley.host.steps.tailnet_resolver import TailnetResolver
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Cut, Fail, Moment
from tests.unit.host.steps import wanted


def is_loaded(line: ModelConnection, daemon: LaunchDaemon) -> bool:
    return f"system/{daemon.label}" in line.mac.state["launchd"]["jobs"]


async def test_the_macs_figures_are_served(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)

    await converge.apply(line, [NodeExporter(wanted.node_exporter(tmp_path))])

    assert is_loaded(line, node_exporter.DAEMON)
    assert line.mac.files.mode("/usr/local/bin/node_exporter") == 0o755


async def test_a_newer_program_takes_its_place_while_the_daemon_is_down(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, NodeExporter(wanted.node_exporter(tmp_path)))
    newer = wanted.node_exporter(tmp_path, "1.9.0")

    await converge.apply(line, [NodeExporter(newer)])

    done = wanted.done(line)
    assert done[3] == "sudo launchctl bootout system/dev.tuist.node-exporter"
    incoming = "/usr/local/lib/.node_exporter.incoming"
    assert done[:3] == [
        f"folder {incoming} 0755 root:wheel",
        f"stream node_exporter {incoming}/node_exporter 0755 root:wheel",
        f"{incoming}/node_exporter --version",
    ]
    assert done[5:7] == [
        f"rename {incoming}/node_exporter /usr/local/bin/node_exporter",
        f"remove {incoming}",
    ]
    assert is_loaded(line, node_exporter.DAEMON)
    assert line.mac.files.read("/usr/local/bin/node_exporter") == newer.path.read_bytes()


async def test_a_node_exporter_that_does_not_answer_leaves_the_old_one(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, NodeExporter(wanted.node_exporter(tmp_path)))
    before = line.mac.files.read("/usr/local/bin/node_exporter")
    line.faults.at(
        lambda one: isinstance(one, Run) and one.argv[-1] == "--version", Fail(127, "no")
    )

    with pytest.raises(CommandFailed, match=r"let node_exporter 1\.9\.0 answer before it is used"):
        await converge.apply(line, [NodeExporter(wanted.node_exporter(tmp_path, "1.9.0"))])

    assert line.mac.files.read("/usr/local/bin/node_exporter") == before
    assert is_loaded(line, node_exporter.DAEMON)
    await converge.apply(line, [NodeExporter(wanted.node_exporter(tmp_path))])
    assert not line.mac.files.exists("/usr/local/lib/.node_exporter.incoming")


async def test_one_part_of_another_release_leaves_the_others_alone(tmp_path: Path) -> None:
    """A change of one byte must not restart everything on the Mac."""
    others: list[Step] = [LogRotation(), TailnetResolver()]
    before = NodeExporter(wanted.node_exporter(tmp_path))
    line = await wanted.mac(tmp_path, before, *others)
    rotation = line.mac.state["launchd"]["jobs"]["system/dev.tuist.log-rotation"]["pid"]

    await converge.apply(line, [NodeExporter(wanted.node_exporter(tmp_path, "1.9.0")), *others])

    done = [text for text in wanted.done(line) if "applied.json" not in text]
    assert not [text for text in done if "rotat" in text or "resolver" in text]
    now = line.mac.state["launchd"]["jobs"]["system/dev.tuist.log-rotation"]["pid"]
    assert now == rotation


async def test_a_script_that_was_edited_on_the_mac_is_put_right(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path, LogRotation())
    line.mac.files.write("/usr/local/bin/tuist-rotate-logs", b"#!/bin/sh\n", mode=0o755)

    await converge.apply(line, [LogRotation()])

    assert line.mac.files.read("/usr/local/bin/tuist-rotate-logs") == log_rotation.SCRIPT
    assert is_loaded(line, log_rotation.DAEMON)


def test_all_logs_that_jobs_of_ours_write_are_kept_small() -> None:
    words = plistlib.loads(log_rotation.DAEMON.plist)["ProgramArguments"]

    assert words[1] == str(64 * 1024 * 1024)
    assert {"/var/log/tart-kubelet.log", "/var/log/tailscaled.log"} < set(words[2:])


async def test_only_names_of_the_tailnet_are_asked_of_its_resolver(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)

    await converge.apply(line, [TailnetResolver()])

    assert line.mac.files.names("/etc/resolver") == ["ts.net"]
    assert line.mac.files.read("/etc/resolver/ts.net") == b"nameserver 100.100.100.100\n"
    done = wanted.done(line)
    flushed = done.index("sudo dscacheutil -flushcache")
    assert done[flushed - 1].startswith("write /etc/resolver/ts.net")


async def test_names_that_nobody_knew_are_forgotten_also_after_a_cut(tmp_path: Path) -> None:
    line = await wanted.mac(tmp_path)
    line.faults.at(lambda one: isinstance(one, Write), Cut(Moment.UNANSWERED))
    with pytest.raises(HostUnreachable):
        await converge.apply(line, [TailnetResolver()])

    await converge.apply(line, [TailnetResolver()])

    assert "sudo killall -HUP mDNSResponder" in wanted.done(line)
