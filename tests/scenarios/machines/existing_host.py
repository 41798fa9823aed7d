"""A Mac as the existing provider has set it up: its agent is one program with an unlimited token, and nothing notes what was done."""

from __future__ import annotations

import asyncio
import plistlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from bramley.api.names import host, launchd
from bramley.base.secret import Secret
from bramley.host import kcpassword
from bramley.host.commands import Run
from bramley.sim.macos import stand_ins
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import Mac

TART = "2.30.0"
AGENT = b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01 tart-kubelet of the existing provider"
# Its other jobs, which this product does not have.
LOG_SHIPPER = "dev.tuist.log-shipper"
_LOG_SHIPPER_PROGRAM = "/usr/local/bin/tuist-log-shipper"
_TART_WRAPPER = b'#!/bin/bash\nexec /usr/local/lib/tart.app/Contents/MacOS/tart "$@"\n'
_PF_BLOCK = f"""
{host.PF_BEGIN}
anchor "{host.PF_ANCHOR}"
load anchor "{host.PF_ANCHOR}" from "{host.PF_ANCHOR_FILE}"
{host.PF_END}
"""
_PF_RULES = """\
table <vm_sources> const { 192.168.64.0/22 }
table <blocked_dst> const { 10.0.0.0/8, 172.16.0.0/12, 169.254.0.0/16 }
block drop quick from <vm_sources> to <blocked_dst>
block drop quick from <vm_sources> to 169.254.169.254
"""
_LOCAL_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
_LOCAL_NETWORK_KEYS = (
    "AllowedEthernetLocalNetworkAddresses",
    "AllowedWiFiLocalNetworkAddresses",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingHost:
    """The agent of one Mac, and what it is started with."""

    name: str
    user: str
    password: str = field(repr=False)
    token: Secret
    arguments: tuple[str, ...]
    # Older releases relied on a click at the screen.
    has_allow_list: bool = True
    # Whether the packet filter was ever loaded with its file.
    is_filtered: bool = True

    async def install(self, mac: Mac, connection: ModelConnection) -> None:
        """Do what its bootstrap does, in the same order; the agent runs at the end."""
        line = f"{self.user} ALL=(ALL) NOPASSWD: ALL\n".encode()
        mac.files.write(f"/etc/sudoers.d/{self.user}-nopasswd", line, mode=0o440)
        await self._log_in(mac, connection)
        await self._name(connection)
        self._install_tart(mac)
        await self._filter(mac, connection)
        for key in _LOCAL_NETWORK_KEYS if self.has_allow_list else ():
            domain = host.LOCAL_NETWORK_DEFAULTS
            await _run(connection, "defaults", "write", domain, key, "-array", *_LOCAL_NETWORKS)
        await self._start_agent(mac, connection)
        mac.files.write(_LOG_SHIPPER_PROGRAM, b"shipper", mode=0o755)
        await self._load(mac, connection, LOG_SHIPPER, _LOG_SHIPPER_PROGRAM, user="root")

    async def _log_in(self, mac: Mac, connection: ModelConnection) -> None:
        encoded = kcpassword.encode(Secret(self.password))
        mac.files.write(host.KCPASSWORD, encoded, mode=0o600)
        domain = host.LOGINWINDOW_DEFAULTS
        await _run(connection, "defaults", "write", domain, "autoLoginUser", self.user)
        target = launchd.in_system(launchd.LOGINWINDOW)
        await _run(connection, "launchctl", "kickstart", "-k", target)
        await asyncio.sleep(mac.state["settings"]["login_seconds"] + 1)

    async def _name(self, connection: ModelConnection) -> None:
        for key in ("HostName", "LocalHostName", "ComputerName"):
            await _run(connection, "scutil", "--set", key, self.name)
        await _run(connection, "pmset", "-a", "sleep", "0", "displaysleep", "0", "disksleep", "0")

    def _install_tart(self, mac: Mac) -> None:
        info = {"CFBundleExecutable": "tart", "CFBundleShortVersionString": TART}
        contents = f"{host.TART_BUNDLE}/Contents"
        mac.files.make_folder(host.PROGRAMS)
        mac.files.make_folder(f"{contents}/MacOS")
        mac.files.write(f"{contents}/Info.plist", plistlib.dumps(info))
        program = stand_ins.program("tart", TART)
        mac.files.write(f"{contents}/MacOS/tart", program, mode=0o755)
        mac.files.write(host.TART_BINARY, _TART_WRAPPER, mode=0o755)

    async def _filter(self, mac: Mac, connection: ModelConnection) -> None:
        mac.files.write(host.PF_ANCHOR_FILE, _PF_RULES.encode())
        text = (mac.files.read(host.PF_CONF) or b"") + _PF_BLOCK.encode()
        mac.files.write(host.PF_CONF, text)
        label, arguments = launchd.PACKET_FILTER, ("/sbin/pfctl", "-f", host.PF_CONF, "-E")
        job = {"Label": label, "ProgramArguments": [*arguments], "RunAtLoad": True}
        mac.files.write(launchd.daemon_plist(label), plistlib.dumps(job))
        if self.is_filtered:
            # This job loads the whole ruleset at once.
            await _run(connection, "pfctl", *arguments[1:])

    async def _start_agent(self, mac: Mac, connection: ModelConnection) -> None:
        owner = f"{self.user}:staff"
        for folder in (host.VM_LOGS, host.VM_USER_DATA, host.VNC_CONTROL, host.AGENT_FOLDER):
            mac.files.make_folder(folder, owner=owner)
        mac.files.write(host.AGENT_LOG, b"", owner=owner)
        kubeconfig = yaml.safe_dump(self._kubeconfig()).encode()
        mac.files.write(host.AGENT_KUBECONFIG, kubeconfig, mode=0o600, owner=owner)
        mac.files.write(host.AGENT_BINARY, AGENT, mode=0o755)
        arguments = (f"--node-name={self.name}", f"--kubeconfig={host.AGENT_KUBECONFIG}")
        program = (host.AGENT_BINARY, *arguments, *self.arguments)
        await self._load(mac, connection, launchd.AGENT, *program, user=self.user)

    def _kubeconfig(self) -> Mapping[str, object]:
        user, name = f"tart-kubelet-{self.name}", "tart-kubelet"
        cluster = {"server": "https://api.example:6443", "certificate-authority-data": "TUlJQg=="}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
            "users": [{"name": user, "user": {"token": self.token.reveal()}}],
        }

    async def _load(
        self, mac: Mac, connection: ModelConnection, label: str, *program: str, user: str
    ) -> None:
        path = launchd.daemon_plist(label)
        job = {
            "Label": label,
            "UserName": user,
            "ProgramArguments": [*program],
            "EnvironmentVariables": {"HOME": host.home(user), "PATH": host.SEARCH_PATH},
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": 10,
            "StandardOutPath": host.AGENT_LOG,
            "StandardErrorPath": host.AGENT_LOG,
        }
        mac.files.write(path, plistlib.dumps(job))
        await _run(connection, "launchctl", "bootstrap", "system", path)


async def _run(connection: ModelConnection, *argv: str) -> None:
    await connection.execute(Run(argv=argv, purpose="set the Mac up", as_root=True))
