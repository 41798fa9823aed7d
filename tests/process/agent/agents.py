"""Real agent processes of simulated Macs on a real server; they and their child processes are killed at the end."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bramley.agent import platform
from bramley.sim.mac.folder import MacFolder
from bramley.sim.tart.process import GUEST_SERVICE
from tests.process.serving.processes import BRAMLEY, TIMEOUT_SECONDS, Bramley, running, until

NODE = "mac-1"
IMAGE = "ghcr.io/example/macos-runner:1"
SCRIPT: dict[str, Any] = {
    "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 600},
    "timings": {"address": 0.3, "agent": 0.3, "ready": 0.5, "halt": 0.2},
    "images": {
        IMAGE: {
            "size_bytes": 1_000_000_000,
            "compressed_bytes": 1_000_000,
            # Runs until a test ends it: no machine is slow enough to miss it running.
            "guest": {"work": 86_400, "lines": ["the guest is at work"]},
        }
    },
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "job"},
    "spec": {
        "restartPolicy": "Never",
        "nodeName": NODE,
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "job", "image": IMAGE}],
    },
}
PODS = "/api/v1/namespaces/default/pods"


@dataclass
class Agent:
    """One agent process after another on one simulated Mac."""

    server: Bramley
    mac: MacFolder
    process: subprocess.Popen[bytes] | None = None
    more: list[str] = field(default_factory=list)

    def command(self, *more: str) -> list[str]:
        folders = self.mac.folders
        flags = {
            "--node-name": NODE,
            "--node-ip": "127.0.0.1",
            "--kubeconfig": self.mac.kubeconfig,
            "--client-ca-file": self.server.folder / "tls" / "ca.crt",
            "--tart-binary": self.mac.programs / "tart",
            "--tart-home": folders.tart_home,
            "--state-dir": folders.state,
            "--userdata-dir": folders.user_data,
            "--vm-log-dir": folders.vm_logs,
            "--kubelet-bind-address": "127.0.0.1:0",
            "--metrics-bind-address": "127.0.0.1:0",
            "--health-probe-bind-address": "127.0.0.1:0",
            "--gui-preflight": "on",
        }
        given = [word for flag, value in flags.items() for word in (flag, str(value))]
        return [sys.executable, "-m", "bramley.cli.tart_kubelet", *given, *self.more, *more]

    def start(self) -> None:
        before = self.beat()
        with self.mac.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command(), env=self.mac.environment(), stdout=out, stderr=out
            )
        until(lambda: self.alive() and self.beat() != before)

    def alive(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.mac.log.read_text()
        return True

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS)

    def node(self) -> dict[str, Any] | None:
        status, body = self.server.request("GET", f"/api/v1/nodes/{NODE}")
        return body if status == 200 else None

    def beat(self) -> object:
        """Return time and uid of the Node's last Ready heartbeat."""
        node = self.node() or {}
        conditions = node.get("status", {}).get("conditions", [])
        ready = [one for one in conditions if one["type"] == "Ready" and one["status"] == "True"]
        return (ready[0]["lastHeartbeatTime"], node["metadata"]["uid"]) if ready else None

    def create(self, name: str = "job") -> dict[str, Any]:
        body = copy.deepcopy(POD)
        body["metadata"]["name"] = name
        status, made = self.server.request("POST", PODS, body)
        assert status == 201, made
        return dict(made)

    def pod(self, name: str = "job") -> dict[str, Any] | None:
        status, body = self.server.request("GET", f"{PODS}/{name}")
        return body if status == 200 else None

    def phase(self, name: str = "job") -> str:
        return str((self.pod(name) or {}).get("status", {}).get("phase", ""))

    def guests(self) -> dict[str, int]:
        """Return the guests' processes by the names of their VMs; short-lived tart commands are left out."""
        program = str(self.mac.folders.tart_home / ".sim" / GUEST_SERVICE)
        found = platform.current().processes()
        return {each.argv[-1]: each.pid for each in found if program in each.argv}

    def shut_down_guest(self) -> None:
        """Shut down the only guest."""
        (vm,) = self.guests()
        subprocess.run(
            [self.mac.programs / "tart", "exec", vm, "shutdown"],
            check=True,
            timeout=TIMEOUT_SECONDS,
            capture_output=True,
            env=self.mac.environment(),
        )

    def page(self, path: str) -> str:
        """Return this page of the agent's metrics or health server."""
        for port in re.findall(r'"Serving probes".*"port":(\d+)', self.mac.log.read_text())[-2:]:
            with (
                suppress(OSError),
                urllib.request.urlopen(
                    f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_SECONDS
                ) as answer,
            ):
                return str(answer.read().decode())
        return ""

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.mac.log.read_text().splitlines()]


@contextmanager
def an_agent(folder: Path, *more: str, script: dict[str, Any] | None = None) -> Iterator[Agent]:
    """Give a server and a simulated Mac whose agent runs when the block begins; nothing of either is left afterwards."""
    with running(folder / "api") as server:
        mac = MacFolder(folder / NODE)
        mac.root.mkdir()
        mac.lay_out(script or SCRIPT)
        made = ["agent-access", "create", NODE, "--out", str(mac.kubeconfig)]
        subprocess.run(
            [str(BRAMLEY), *made, "--kubeconfig", str(server.kubeconfig)],
            check=True,
            timeout=TIMEOUT_SECONDS,
            capture_output=True,
        )
        agent = Agent(server, mac, more=list(more))
        try:
            agent.start()
            yield agent
        finally:
            if agent.process is not None and agent.process.poll() is None:
                agent.process.kill()
                agent.process.wait(TIMEOUT_SECONDS)
            until(lambda: not killed(mac))


def killed(mac: MacFolder) -> list[int]:
    """Kill what runs on a Mac; return what was killed, because it may have started more meanwhile."""
    found = mac.processes()
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found
