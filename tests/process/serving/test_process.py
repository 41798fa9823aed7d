"""A real `bramley apiserver` starts, serves, protects its secrets, and stops without losing data."""

from __future__ import annotations

import http.client
import json
import signal
import stat
import threading
from pathlib import Path

import pytest

from bramley.api.core import ConfigMap, Namespace
from bramley.api.meta import ObjectMeta
from bramley.kube.config_loader import connect
from tests.process.serving.processes import Bramley, running, until
from tests.process.threaded import in_a_thread
from tests.programs import run_program

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def a_config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def assert_no_deadline_passed(server: Bramley) -> None:
    """Check the log instead of the duration, because a busy machine is slow in any case."""
    output = server.err.read_text()
    assert "drain deadline passed" not in output
    assert "graceful shutdown exceeded" not in output


def wait_for_controllers(server: Bramley) -> None:
    """Wait until they are loaded: what a stop has to wait for is then the same on every machine."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    until(lambda: server.request("GET", f"{accounts}/default")[0] == 200)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_our_own_client_works_with_the_written_kubeconfig(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with connect(server.kubeconfig, environment={}) as client:
            made = await client.create(
                ConfigMap(metadata=ObjectMeta(name="hello"), data={"a": "b"}), namespace="default"
            )
            namespaces = await client.list(Namespace)

    assert made.metadata.uid
    assert "default" in [one.name for one in namespaces.items]


@in_a_thread
def test_every_file_is_closed_to_other_users(tmp_path: Path) -> None:
    # The strictest test: nothing may rely on the caller's mask.
    with running(tmp_path, umask=0) as server:
        server.request("POST", CONFIG_MAPS, a_config_map("one"))
        server.process.kill()
        server.process.wait()
    files = [path for path in server.folder.rglob("*") if path.is_file()]
    folders = [server.folder, *(path for path in server.folder.rglob("*") if path.is_dir())]

    assert server.folder / "bramley.db-wal" in files
    assert {path.name: 0o600 for path in files} == {path.name: mode(path) for path in files}
    assert all(mode(path) == 0o700 for path in folders)
    assert mode(server.kubeconfig) == 0o600


@in_a_thread
def test_token_is_only_in_the_kubeconfig(tmp_path: Path) -> None:
    with running(tmp_path, "--log-level", "debug") as server:
        token = server.token
        server.request("POST", CONFIG_MAPS, a_config_map("one"))
        server.request("GET", "/nowhere")
        arguments = run_program(
            ["ps", "-ww", "-o", "args=", "-p", str(server.process.pid)], check=True
        ).stdout
        server.stop()

    assert "apiserver" in arguments
    everywhere = [path for path in tmp_path.rglob("*") if path.is_file()]
    holders = [path for path in everywhere if token.encode() in path.read_bytes()]
    assert holders == [server.kubeconfig]
    assert token not in arguments


@pytest.mark.parametrize("token", ["", "wrong", "Bearer"])
def test_other_tokens_are_rejected(token: str, tmp_path: Path) -> None:
    with running(tmp_path) as server:
        code, answer = server.request("GET", CONFIG_MAPS, token=token or "x")

    assert (code, answer["reason"]) == (401, "Unauthorized")


@in_a_thread
def test_health_is_readable_by_every_user(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        connection = server.connection()
        connection.request("GET", "/livez")

        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_is_clean_and_quick_though_watches_are_open(
    number: signal.Signals, tmp_path: Path
) -> None:
    with running(tmp_path) as server:
        wait_for_controllers(server)
        watches = [server.connection() for _ in range(5)]
        streams = []
        for watch in watches:
            headers = {"Authorization": f"Bearer {server.token}"}
            path = f"{CONFIG_MAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Done"
            watch.request("GET", path, headers=headers)
            streams.append(watch.getresponse())
        server.request("POST", CONFIG_MAPS, a_config_map("one"))

        code = server.stop(number)

        # The streams end properly: http.client raises on a truncated chunk.
        events = [[json.loads(line) for line in stream.read().splitlines()] for stream in streams]
        for watch in watches:
            watch.close()

    assert code == 0
    assert_no_deadline_passed(server)
    names = [[event["object"]["metadata"]["name"] for event in seen][-1] for seen in events]
    assert names == ["one"] * 5
    assert [line["message"] for line in server.log()][-1] == "Stopped server"


@in_a_thread
def test_acknowledged_writes_survive_a_stop_under_load(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    with running(tmp_path) as server:

        def write() -> None:
            for index in range(10_000):
                try:
                    code, _ = server.request("POST", CONFIG_MAPS, a_config_map(f"one-{index}"))
                except (OSError, ValueError, EOFError, http.client.HTTPException):
                    return
                if code == 201:
                    acknowledged.append(f"one-{index}")

        writer = threading.Thread(target=write)
        writer.start()
        until(lambda: len(acknowledged) > 5)
        assert server.stop() == 0
        writer.join()

    with running(tmp_path) as server:
        _, listed = server.request("GET", CONFIG_MAPS)
        found = {one["metadata"]["name"] for one in listed["items"]}

    assert set(acknowledged) <= found


@in_a_thread
def test_second_signal_stops_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        wait_for_controllers(server)
        # A request whose body never comes keeps the server waiting for its deadline.
        slow = server.connection()
        slow.putrequest("POST", CONFIG_MAPS)
        for header, value in (
            ("Authorization", f"Bearer {server.token}"),
            ("Content-Type", "application/json"),
            ("Content-Length", "100"),
        ):
            slow.putheader(header, value)
        slow.endheaders()
        until(lambda: server.request("GET", "/livez")[0] == 200)
        server.process.send_signal(signal.SIGINT)
        until(lambda: "Draining server" in server.err.read_text())

        code = server.stop(signal.SIGINT)
        slow.close()

    assert code == 0
    assert_no_deadline_passed(server)


@in_a_thread
def test_restart_keeps_data_token_and_authority_and_serves_on_another_port(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        first = server.access
        server.request("POST", CONFIG_MAPS, a_config_map("one"))
        server.stop()

    with running(tmp_path) as server:
        second = server.access
        code, _ = server.request("GET", f"{CONFIG_MAPS}/one")

    assert code == 200
    assert first[1:] == second[1:]


@in_a_thread
def test_removed_kubeconfig_is_written_again_with_a_new_token(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        old = server.token
        server.stop()
    server.kubeconfig.unlink()

    with running(tmp_path) as server:
        code, _ = server.request("GET", CONFIG_MAPS, token=old)

        assert old != server.token
        assert code == 401
        assert server.request("GET", CONFIG_MAPS)[0] == 200


@in_a_thread
def test_killed_server_starts_again_on_the_same_folder(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.request("POST", CONFIG_MAPS, a_config_map("one"))
        server.process.kill()
        server.process.wait()

    with running(tmp_path) as server:
        assert server.request("GET", f"{CONFIG_MAPS}/one")[0] == 200


@in_a_thread
def test_idle_server_is_small(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        output = run_program(["ps", "-o", "rss=", "-p", str(server.process.pid)], check=True).stdout

    assert int(output) / 1024 < 75


@in_a_thread
def test_up_prints_commands_to_try_and_the_actual_port(tmp_path: Path) -> None:
    with running(tmp_path, "--macs", "0", command="up") as server:
        printed = until(lambda: text if "Ctrl-C" in (text := server.out.read_text()) else "")
        address, _, _ = server.access

    assert f"API server  {address}\n" in printed
    assert f"export KUBECONFIG={server.kubeconfig}\n" in printed
    assert "kubectl explain runnerpool.spec\n" in printed
    assert "\x1b" not in printed
