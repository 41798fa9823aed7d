"""`kubectl logs` of a Pod whose agent serves as a kubelet does, through our server and through a real one."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from bramley.agent.ledger import VmState
from bramley.api.core import Node
from tests.contract.kube_client.targets import serving
from tests.contract.kubelet.stage import TIMEOUT_SECONDS, Target, staged, until


async def test_log_with_tail_and_timestamps(target: Target, tmp_path: Path) -> None:
    async with staged(target, tmp_path) as stage:
        await stage.begin()
        stage.log.write_text("booting\nvnc://:geheim@127.0.0.1:5900\nbooted\n")
        stage.guest_log.write_text("job began\njob ended")

        whole = stage.shown("logs", "p")
        assert sorted(whole.splitlines()) == sorted(
            ["booting", "vnc://REDACTED", "booted", "job began", "job ended"]
        )
        assert len(stage.shown("logs", "p", "--tail=2").splitlines()) == 2
        assert stage.shown("logs", "p", "--tail=0") == ""
        assert stage.shown("logs", "p", "--since=1h") == whole
        assert stage.shown("logs", "p", "--limit-bytes=5") == whole[:5]
        dated = stage.shown("logs", "p", "-c", "vm", "--timestamps").splitlines()
        assert all(re.match(r"20\d\d-\d\d-\d\dT[\d:]{8}\.\d{9}Z \w", line) for line in dated)


async def test_followed_log_grows_and_ends_with_the_vm(target: Target, tmp_path: Path) -> None:
    async with staged(target, tmp_path) as stage:
        pod = await stage.begin()
        stage.log.write_text("first\n")
        output = tmp_path / "followed"
        with stage.following(output, "p") as following:
            until(output, "first")
            stage.guest_log.write_text("second\n")
            until(output, "second")
            with stage.log.open("a") as log:
                log.write("last, without an end")
            stage.put(pod, VmState.ENDED)

            assert following.wait(TIMEOUT_SECONDS) == 0
        assert output.read_text() == "first\nsecond\nlast, without an end\n"
        assert stage.shown("logs", "p").splitlines()[0] == "first"


async def test_unavailable_logs_give_the_errors_of_a_kubelet(
    target: Target, tmp_path: Path
) -> None:
    async with staged(target, tmp_path) as stage:
        pod = await stage.begin(state=VmState.CLONED)
        waiting = 'container "vm" in pod "p" is waiting to start: ContainerCreating'
        assert stage.refused("logs", "p") == f"Error from server (BadRequest): {waiting}"

        stage.put(pod, VmState.STARTED)
        previous = 'previous terminated container "vm" in pod "p" not found'
        assert (
            stage.refused("logs", "p", "--previous")
            == f"Error from server (BadRequest): {previous}"
        )
        unknown = "container other is not valid for pod p"
        assert stage.refused("logs", "p", "-c", "other").endswith(unknown)
        (tmp_path / "pods.json").write_text("[]")
        lost = "the server could not find the requested resource ( pods/log p)"
        assert stage.refused("logs", "p") == f"Error from server (NotFound): {lost}"


async def test_stopped_agent_is_an_error_with_its_address(target: Target, tmp_path: Path) -> None:
    async with staged(target, tmp_path) as stage:
        await stage.begin()
        port = stage.port
        url = f"https://127.0.0.1:{port}/containerLogs/{stage.namespace}/p/vm"
        # Another port, on which nothing listens.
        body = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}
        await stage.kube.merge_patch(Node, stage.node, body, subresource="status")

        message = stage.refused("logs", "p")
        assert f'Error from server: Get "{url.replace(str(port), "1")}": ' in message


async def test_server_that_stops_ends_followed_logs(kubectl: Path, tmp_path: Path) -> None:
    server, folder = tmp_path / "server", tmp_path / "mac"
    for each in (server, folder):
        each.mkdir()
    output = tmp_path / "followed"
    with ExitStack() as stack:
        running = stack.enter_context(serving(server))
        target = Target("own", running, server / "data" / "tls" / "ca.crt", kubectl)
        async with staged(target, folder) as stage:
            await stage.begin()
            stage.log.write_text("first\n")
            with stage.following(output, "p") as following:
                until(output, "first")
                stack.close()

                assert following.wait(TIMEOUT_SECONDS) == 0
