"""`bramley up --bootstrap` rents simulated Macs and a builder, and `bramley up --mac` manages a Mac that a user owns."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.process.serving.processes import (
    TIMEOUT_SECONDS,
    Bramley,
    held_port,
    running,
    until,
)
from tests.process.threaded import in_a_thread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux's")
CORE = "/apis/cluster.x-k8s.io/v1beta1/namespaces/default"
MACHINES = (
    "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/default/scalewayapplesiliconmachines"
)
MAC_HOSTS = "/apis/tuist.dev/v1alpha1/namespaces/default/machosts"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
# Two Macs are bootstrapped on a busy machine.
SECONDS = 2 * TIMEOUT_SECONDS


def items(server: Bramley, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.request("GET", path)[1].get("items", [])
    return found


def names(server: Bramley, path: str) -> list[str]:
    return [each["metadata"]["name"] for each in items(server, path)]


def true_conditions(obj: dict[str, Any]) -> set[str]:
    conditions = obj.get("status", {}).get("conditions", ())
    return {each["type"] for each in conditions if each["status"] == "True"}


def are_ready(server: Bramley, path: str, count: int) -> bool:
    """Return whether there are so many Macs, proven, with a Node that is Ready and without a taint of a new one."""
    nodes = {each["metadata"]["name"]: each for each in items(server, "/api/v1/nodes")}
    found = items(server, path)
    return len(found) == count and all(
        {"Ready", "Proven"} <= true_conditions(each)
        and "Ready" in true_conditions(nodes.get(each["metadata"]["name"], {}))
        and "unproven" not in json.dumps(nodes[each["metadata"]["name"]]["spec"])
        for each in found
    )


def scaleway(server: Bramley) -> list[dict[str, Any]]:
    """Return the servers of the simulated Scaleway of this start."""
    found = re.search(r"Scaleway at (\S+)", server.out.read_text())
    assert found
    with urlopen(f"{found[1]}/sim/state", timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - ours
        servers: list[dict[str, Any]] = json.load(response)["servers"]
    return servers


def hosts(server: Bramley) -> dict[str, str]:
    """Return the hosts of the machines."""
    return {
        each["metadata"]["name"]: each["status"]["serverID"] for each in items(server, MACHINES)
    }


@contextmanager
def up(place: Path, port: int, *arguments: str) -> Iterator[Bramley]:
    listen = f"127.0.0.1:{port}"
    with running(place, "--listen", listen, *arguments, command="up") as server:
        yield server


@in_a_thread
def test_rented_macs_survive_a_kill_and_are_released_by_a_scale_down(tmp_path: Path) -> None:
    arguments = ("--bootstrap", "--macs", "1")
    with held_port() as port:
        with up(tmp_path, port, *arguments) as server:
            until(lambda: "tart (" in server.out.read_text(), seconds=SECONDS)
            # In the middle of the bootstraps.
            server.stop(signal.SIGKILL)

        with up(tmp_path, port, *arguments) as server:
            until(lambda: are_ready(server, MACHINES, 2), seconds=SECONDS)
            before = hosts(server)
            assert len({*before.values()}) == 2
            until(lambda: "(2 of 2)" in server.out.read_text())
            server.stop(signal.SIGKILL)

        with up(tmp_path, port, *arguments) as server:
            until(lambda: "(2 of 2)" in server.out.read_text(), seconds=SECONDS)
            assert hosts(server) == before
            registered = json.loads((tmp_path / "data/dispatch/runners.json").read_text())
            [builder] = [name for name in before if name.startswith("builders")]
            assert [each["name"] for each in registered] == [builder]

            scale = server.request("GET", f"{CORE}/machinedeployments/macs/scale")[1]
            scale["spec"]["replicas"] = 0
            assert server.request("PUT", f"{CORE}/machinedeployments/macs/scale", scale)[0] == 200
            until(lambda: names(server, MACHINES) == [builder], seconds=SECONDS)
            until(lambda: names(server, "/api/v1/nodes") == [builder])
            [released] = [each for each in scaleway(server) if each["id"] != before[builder]]
            assert released["name"].startswith("tuist-pool-")
            leases = [name for name in names(server, LEASES) if name.startswith("mac-host-")]
            assert leases == [f"mac-host-{before[builder]}"]

            assert server.stop(signal.SIGINT) == 0
            assert "Traceback" not in server.err.read_text()
