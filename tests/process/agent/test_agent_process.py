"""The agent as a real process: its start, the refusal of a second one, and the re-registration of its Node."""

from __future__ import annotations

import signal
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

from bramley.agent.node.controller import Timings
from tests.process.agent.agents import NODE, Agent, an_agent
from tests.process.serving.processes import TIMEOUT_SECONDS, until
from tests.process.threaded import in_a_thread

# The budget of the agent's memory, with a margin for a loaded machine.
MOST_KIB = 50 * 1024
HEARTBEAT_SECONDS = Timings().every.total_seconds()
# A try is inconclusive when the machine pauses, or when a heartbeat was due anyway.
TRIES = 5


def gone_for(agent: Agent) -> float:
    """Delete the Node; return the seconds from its last heartbeat to its re-creation."""
    (last_beat, old) = until(agent.beat)
    agent.server.request("DELETE", f"/api/v1/nodes/{NODE}")

    def is_new() -> dict[str, Any] | None:
        node = agent.node()
        return node if node is not None and node["metadata"]["uid"] != old else None

    made = until(is_new)["metadata"]["creationTimestamp"]
    return (datetime.fromisoformat(made) - datetime.fromisoformat(last_beat)).total_seconds()


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@in_a_thread
def test_agent_serves_its_lease_probes_and_metrics(tmp_path: Path) -> None:
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
def test_second_agent_of_a_host_is_refused(tmp_path: Path) -> None:
    with an_agent(tmp_path) as agent:
        second = subprocess.run(
            agent.command(),
            env=agent.mac.environment(),
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

        stderr = second.stderr.decode()
        assert second.returncode == 2
        assert agent.process is not None
        assert f"another agent (process {agent.process.pid})" in stderr
        assert "--state-dir" in stderr
        assert agent.alive()


@in_a_thread
def test_deleted_node_is_registered_again_and_its_vm_keeps_running(tmp_path: Path) -> None:
    with an_agent(tmp_path) as agent:
        agent.create()
        until(lambda: agent.phase() == "Running")
        guests = agent.guests()
        assert len(guests) == 1

        # Long before the next heartbeat is due.
        assert any(gone_for(agent) < HEARTBEAT_SECONDS - 5 for _ in range(TRIES))

        assert agent.guests() == guests
        agent.shut_down_guest()
        until(lambda: agent.phase() == "Failed")
        until(lambda: agent.beat() is not None)


@in_a_thread
def test_vm_that_is_stopped_while_no_agent_runs_has_failed(tmp_path: Path) -> None:
    with an_agent(tmp_path) as agent:
        agent.create()
        until(lambda: agent.phase() == "Running")
        (vm,) = agent.guests()
        agent.stop(signal.SIGKILL)
        subprocess.run(
            [agent.mac.programs / "tart", "stop", vm],
            check=True,
            timeout=TIMEOUT_SECONDS,
            capture_output=True,
            env=agent.mac.environment(),
        )
        until(lambda: not agent.guests())

        agent.start()
        until(lambda: agent.phase() in {"Succeeded", "Failed"})

        status = (agent.pod() or {})["status"]
        ended = status["containerStatuses"][0]["state"]["terminated"]
        assert (status["phase"], status["reason"]) == ("Failed", "Stopped")
        assert (ended["reason"], ended["exitCode"]) == ("Stopped", 137)
        assert "Stopping VM..." in ended["message"]
