"""A Mac of an older release with running VMs: upgraded without a restart of loginwindow, a reboot or a lost VM."""

from __future__ import annotations

import dataclasses
import plistlib
from pathlib import Path
from typing import Any

from bramley.api.names import host, launchd
from bramley.host import converge, sequence
from bramley.host.commands import Reboot, Run
from bramley.host.step import Step
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import Mac
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import MacTemplate

BINARY = b"\xcf\xfa\xed\xfe an older agent"
ANCHOR = (
    "table <vm_sources> { 192.168.64.0/22 }\nblock drop quick from <vm_sources> to 10.0.0.0/8\n"
)
STANZA = f"""\
# Tuist runner VM egress filter (managed)
anchor "{host.PF_ANCHOR}"
load anchor "{host.PF_ANCHOR}" from "{host.PF_ANCHOR_FILE}"
"""
BEFORE = ("preconditions", "sudo", "auto-login", "tart")
LONG_LIVED = b"users: [{name: tart-kubelet-mac-01, user: {token: old}}]\n"


def job(label: str, *argv: str, **more: Any) -> bytes:
    content = {"Label": label, "ProgramArguments": list(argv), "RunAtLoad": True, **more}
    return plistlib.dumps(content)


def prepare(mac: Mac) -> None:
    """Bring a Mac into the state that an older release leaves."""
    files = mac.files
    for folder in (host.PROGRAMS, host.AGENT_FOLDER, "/etc/pf.anchors"):
        files.make_folder(folder)
    files.write(host.AGENT_BINARY, BINARY, mode=0o755)
    files.write(host.AGENT_KUBECONFIG, LONG_LIVED, mode=0o600)
    files.write(host.PF_ANCHOR_FILE, ANCHOR.encode())
    files.write(host.PF_CONF, (files.read(host.PF_CONF) or b"") + STANZA.encode())
    boot = job(launchd.PACKET_FILTER, "/sbin/pfctl", "-f", host.PF_CONF, "-E")
    files.write(launchd.daemon_plist(launchd.PACKET_FILTER), boot)
    flags = ("--node-name=mac-01", "--disable-vm-gc")
    old = job(launchd.AGENT, host.AGENT_BINARY, *flags, KeepAlive=True, UserName="m1")
    files.write(launchd.daemon_plist(launchd.AGENT), old)


def steps(folder: Path) -> list[Step]:
    complete = fixtures.spec(folder, tailnet=None, node_exporter=None)
    job = dataclasses.replace(complete.job, on_tailnet=False, is_builder=None)
    return sequence.steps(dataclasses.replace(complete, job=job), clock=virtual_time.clock())


async def old_mac(folder: Path) -> ModelConnection:
    earlier = [step for step in steps(folder) if step.name in BEFORE]
    connection = (await MacTemplate.make(folder / "macs", *earlier)).copy("old")
    prepare(connection.mac)
    await connection.execute(Reboot(purpose="reboot"))
    await converge.apply(connection, [step for step in steps(folder) if step.name == "auto-login"])
    connection.done.clear()
    fixtures.run_vms(connection.mac, 2)
    return connection


async def test_mac_of_an_older_release_is_upgraded_while_vms_run(tmp_path: Path) -> None:
    connection = await old_mac(tmp_path)

    report = await converge.apply(connection, steps(tmp_path))

    files = connection.mac.files
    assert files.target(host.AGENT_BINARY) == host.AGENT_CURRENT_BINARY
    assert b"token: old" not in (files.read(host.AGENT_KUBECONFIG) or b"")
    conf = files.read(host.PF_CONF) or b""
    assert conf.count(b"load anchor") == 2, "Apple's own and ours"
    assert b"--disable-vm-gc" in (files.read(launchd.daemon_plist(launchd.AGENT)) or b"")
    notices = (*report.pending, *report.advice)
    assert [text.partition(":")[0] for text in notices] == ["RebootAdvised"]
    argvs = [command.argv for command in connection.done if isinstance(command, Run)]
    assert not [argv for argv in argvs if launchd.in_system(launchd.LOGINWINDOW) in argv]
    assert not [command for command in connection.done if isinstance(command, Reboot)]
    loaded_rules = connection.mac.run(
        Call(("pfctl", "-a", host.PF_ANCHOR, "-s", "rules"), "root")
    ).out
    assert f'label "{host.PF_ANCHOR}:' in loaded_rules
    assert (await converge.plan(connection, steps(tmp_path))).is_empty
