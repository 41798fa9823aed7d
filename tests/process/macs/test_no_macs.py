"""`bramley up --macs 0` after a start with Macs retires them once, and keeps Nodes of the same name that are created later."""

from __future__ import annotations

from pathlib import Path

from tests.process.serving.processes import Bramley, running, until
from tests.process.threaded import in_a_thread

NODES = "/api/v1/nodes"


def nodes(server: Bramley) -> list[str]:
    return [node["metadata"]["name"] for node in server.request("GET", NODES)[1]["items"]]


def a_node(server: Bramley, name: str) -> None:
    assert server.request("POST", NODES, {"metadata": {"name": name}})[0] == 201


@in_a_thread
def test_macs_of_an_earlier_start_are_retired_once(tmp_path: Path) -> None:
    with running(tmp_path, "--macs", "0", command="up") as server:
        for name in ("mac-1", "mac-2", "other-node"):
            a_node(server, name)
    for name in ("mac-1", "mac-2"):
        (tmp_path / "data" / "macs" / name).mkdir(parents=True)

    with running(tmp_path, "--macs", "0", command="up") as server:
        until(lambda: nodes(server) == ["other-node"])
        # The retirement is complete.
        until(lambda: (tmp_path / "data" / "macs" / ".retired-mac-2").exists())
        a_node(server, "mac-1")

    with running(tmp_path, "--macs", "0", command="up") as server:
        assert nodes(server) == ["mac-1", "other-node"]
