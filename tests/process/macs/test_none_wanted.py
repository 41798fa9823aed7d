"""`bramley up --macs 0` after a start with Macs: these go, and nothing of the same name that somebody makes by hand."""

from __future__ import annotations

from pathlib import Path

from tests.process.beside import in_a_thread
from tests.process.serving.processes import Bramley, running, until

NODES = "/api/v1/nodes"


def nodes(server: Bramley) -> list[str]:
    return [node["metadata"]["name"] for node in server.request("GET", NODES)[1]["items"]]


def a_node(server: Bramley, name: str) -> None:
    assert server.request("POST", NODES, {"metadata": {"name": name}})[0] == 201


@in_a_thread
def test_macs_of_an_earlier_start_go_once_where_none_is_wanted_now(tmp_path: Path) -> None:
    with running(tmp_path, "--macs", "0", command="up") as server:
        for name in ("mac-1", "mac-2", "somebody-s"):
            a_node(server, name)
    for name in ("mac-1", "mac-2"):
        (tmp_path / "data" / "macs" / name).mkdir(parents=True)

    with running(tmp_path, "--macs", "0", command="up") as server:
        until(lambda: nodes(server) == ["somebody-s"])
        # Whatever is left to do for a Mac that was taken away is done now.
        until(lambda: (tmp_path / "data" / "macs" / ".retired-mac-2").exists())
        a_node(server, "mac-1")

    with running(tmp_path, "--macs", "0", command="up") as server:
        assert nodes(server) == ["mac-1", "somebody-s"]
