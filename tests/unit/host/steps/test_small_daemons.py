"""Small daemons: node_exporter, the rotation of logs, and the resolver of the tailnet."""

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
from bramley.sim.macos.faults import Cut, CutPoint, Fail
from tests.unit.host.steps import fixtures


def is_loaded(connection: ModelConnection, daemon: LaunchDaemon) -> bool:
    return f"system/{daemon.label}" in connection.mac.state["launchd"]["jobs"]


async def test_node_exporter_is_installed_and_loaded(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)

    await converge.apply(connection, [NodeExporter(fixtures.node_exporter(tmp_path))])

    assert is_loaded(connection, node_exporter.DAEMON)
    assert connection.mac.files.mode("/usr/local/bin/node_exporter") == 0o755


async def test_newer_program_is_installed_while_the_daemon_is_down(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, NodeExporter(fixtures.node_exporter(tmp_path)))
    newer = fixtures.node_exporter(tmp_path, "1.9.0")

    await converge.apply(connection, [NodeExporter(newer)])

    done = fixtures.executed(connection)
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
    assert is_loaded(connection, node_exporter.DAEMON)
    assert connection.mac.files.read("/usr/local/bin/node_exporter") == newer.path.read_bytes()


async def test_broken_node_exporter_is_not_installed(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, NodeExporter(fixtures.node_exporter(tmp_path)))
    before = connection.mac.files.read("/usr/local/bin/node_exporter")
    connection.faults.at(
        lambda one: isinstance(one, Run) and one.argv[-1] == "--version", Fail(127, "no")
    )

    with pytest.raises(CommandFailed, match=r"check that node_exporter 1\.9\.0 runs"):
        await converge.apply(connection, [NodeExporter(fixtures.node_exporter(tmp_path, "1.9.0"))])

    assert connection.mac.files.read("/usr/local/bin/node_exporter") == before
    assert is_loaded(connection, node_exporter.DAEMON)
    await converge.apply(connection, [NodeExporter(fixtures.node_exporter(tmp_path))])
    assert not connection.mac.files.exists("/usr/local/lib/.node_exporter.incoming")


async def test_change_of_one_part_leaves_the_others_alone(tmp_path: Path) -> None:
    """A change of one byte must not restart everything on the Mac."""
    others: list[Step] = [LogRotation(), TailnetResolver()]
    before = NodeExporter(fixtures.node_exporter(tmp_path))
    connection = await fixtures.mac(tmp_path, before, *others)
    rotation = connection.mac.state["launchd"]["jobs"]["system/dev.tuist.log-rotation"]["pid"]

    await converge.apply(
        connection, [NodeExporter(fixtures.node_exporter(tmp_path, "1.9.0")), *others]
    )

    done = [text for text in fixtures.executed(connection) if "applied.json" not in text]
    assert not [text for text in done if "rotat" in text or "resolver" in text]
    now = connection.mac.state["launchd"]["jobs"]["system/dev.tuist.log-rotation"]["pid"]
    assert now == rotation


async def test_edited_script_is_restored(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, LogRotation())
    connection.mac.files.write("/usr/local/bin/tuist-rotate-logs", b"#!/bin/sh\n", mode=0o755)

    await converge.apply(connection, [LogRotation()])

    assert connection.mac.files.read("/usr/local/bin/tuist-rotate-logs") == log_rotation.SCRIPT
    assert is_loaded(connection, log_rotation.DAEMON)


def test_logs_of_all_jobs_are_rotated() -> None:
    words = plistlib.loads(log_rotation.DAEMON.plist)["ProgramArguments"]

    assert words[1] == str(64 * 1024 * 1024)
    assert {"/var/log/tart-kubelet.log", "/var/log/tailscaled.log"} < set(words[2:])


async def test_resolver_serves_names_of_the_tailnet_only(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)

    await converge.apply(connection, [TailnetResolver()])

    assert connection.mac.files.names("/etc/resolver") == ["ts.net"]
    assert connection.mac.files.read("/etc/resolver/ts.net") == b"nameserver 100.100.100.100\n"
    done = fixtures.executed(connection)
    flushed = done.index("sudo dscacheutil -flushcache")
    assert done[flushed - 1].startswith("write /etc/resolver/ts.net")


async def test_dns_cache_is_flushed_after_an_interruption(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path)
    connection.faults.at(lambda one: isinstance(one, Write), Cut(CutPoint.UNANSWERED))
    with pytest.raises(HostUnreachable):
        await converge.apply(connection, [TailnetResolver()])

    await converge.apply(connection, [TailnetResolver()])

    assert "sudo killall -HUP mDNSResponder" in fixtures.executed(connection)
