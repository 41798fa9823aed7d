"""The agent as a process of its own: how it starts, whom it refuses, and that its Node comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.process.agent.agents import NODE, an_agent
from tests.process.beside import in_a_thread
from tests.process.serving.processes import PATIENCE, until

# What the issue of its footprint asks for, with the room that a loaded machine needs.
MOST_KIB = 50 * 1024


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@in_a_thread
def test_a_mac_is_a_node_that_beats_and_tells_how_it_is(tmp_path: Path) -> None:
    with an_agent(tmp_path) as agent:
        status, lease = agent.server.request(
            "GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
        )
        assert (status, lease["spec"]["holderIdentity"]) == (200, NODE)
        assert until(lambda: agent.page("/healthz")) == "ok"
        assert until(lambda: agent.page("/readyz")) == "ok"
        assert f"[+]node/{NODE} ok" in agent.page("/healthz?verbose")
        assert "[+]lease ok" in agent.page("/readyz?verbose")
        assert "tart_kubelet_tart_timeouts_total" in agent.page("/metrics")
        assert agent.process is not None
        assert resident_kib(agent.process.pid) <= MOST_KIB

        assert agent.stop() == 0


@in_a_thread
def test_a_second_agent_of_a_host_is_refused(tmp_path: Path) -> None:
    with an_agent(tmp_path) as agent:
        second = subprocess.run(
            agent.command(),
            env=agent.mac.environment(),
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )

        told = second.stderr.decode()
        assert second.returncode == 2
        assert agent.process is not None
        assert f"another agent (process {agent.process.pid})" in told
        assert "--state-dir" in told
        assert agent.alive()


@in_a_thread
def test_a_node_that_is_deleted_comes_back_at_once_and_its_vm_never_notices(tmp_path: Path) -> None:
    with an_agent(tmp_path) as agent:
        agent.create()
        until(lambda: agent.phase() == "Running")
        vms, old = agent.mac.vms(), agent.node()
        assert old is not None

        agent.server.request("DELETE", f"/api/v1/nodes/{NODE}")

        def is_new() -> bool:
            node = agent.node()
            return node is not None and node["metadata"]["uid"] != old["metadata"]["uid"]

        # Long before it would say again how its Node is.
        until(is_new, seconds=20)
        assert agent.mac.vms() == vms
        until(lambda: agent.phase() == "Failed")
        until(lambda: agent.beat() is not None)
