"""The agent as a process of its own: how it starts, whom it refuses, and that its Node comes back."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

from bramley.agent.node.controller import Timings
from tests.process.agent.agents import NODE, Agent, an_agent
from tests.process.serving.processes import PATIENCE, until
from tests.process.threaded import in_a_thread

# What the issue of its footprint asks for, with the room that a loaded machine needs.
MOST_KIB = 50 * 1024
SAYS_AGAIN = Timings().every.total_seconds()
# On a machine that stands still in between, or when it was about to say so anyway, the next try tells.
TRIES = 5


def gone_for(agent: Agent) -> float:
    """Delete the Node; return how many seconds after it last said how it was it is there anew."""
    (said, old) = until(agent.beat)
    agent.server.request("DELETE", f"/api/v1/nodes/{NODE}")

    def is_new() -> dict[str, Any] | None:
        node = agent.node()
        return node if node is not None and node["metadata"]["uid"] != old else None

    made = until(is_new)["metadata"]["creationTimestamp"]
    return (datetime.fromisoformat(made) - datetime.fromisoformat(said)).total_seconds()


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
        assert f"[+]node/{NODE} ok" in until(lambda: agent.page("/healthz?verbose"))
        assert "[+]lease ok" in until(lambda: agent.page("/readyz?verbose"))
        assert "tart_kubelet_tart_timeouts_total" in until(lambda: agent.page("/metrics"))
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
        guests = agent.guests()
        assert len(guests) == 1

        # Long before it would say again how its Node is.
        assert any(gone_for(agent) < SAYS_AGAIN - 5 for _ in range(TRIES))

        assert agent.guests() == guests
        agent.shut_down_guest()
        until(lambda: agent.phase() == "Failed")
        until(lambda: agent.beat() is not None)
