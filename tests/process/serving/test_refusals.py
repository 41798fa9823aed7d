"""Errors at startup are one line with what to do, and change nothing."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.process.serving.processes import clean_environment, failed_run, running
from tests.process.threaded import in_a_thread


def refused(*arguments: str, code: int = 2, environment: dict[str, str] | None = None) -> str:
    done = failed_run("apiserver", "--log-level", "error", *arguments, environment=environment)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("bramley: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def place(tmp_path: Path, *more: str) -> list[str]:
    return ["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", *more]


@in_a_thread
def test_port_in_use(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        message = refused("--data-dir", str(tmp_path / "data"), "--listen", address)

    assert f"{address} is in use by another program" in message
    assert not (tmp_path / "data").exists()


@in_a_thread
def test_second_process_on_the_same_folder(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        message = refused("--data-dir", str(server.folder), "--listen", "127.0.0.1:0")

        assert f"is in use by process {server.process.pid}" in message
        assert server.request("GET", "/readyz")[0] == 200


@in_a_thread
def test_folder_that_cannot_be_created() -> None:
    # Not even root can make a folder there.
    message = refused("--data-dir", "/dev/null/data", "--listen", "127.0.0.1:0")

    assert "cannot be used" in message
    assert "--data-dir" in message


@in_a_thread
def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").touch()

    assert "choose another one with --data-dir" in refused(*place(tmp_path))


@in_a_thread
def test_foreign_kubeconfig_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "config"
    theirs.write_text("clusters: [{name: production, cluster: {server: https://x}}]\n")

    message = refused(*place(tmp_path), "--kubeconfig-out", str(theirs))

    assert "was not written by Bramley" in message
    assert "production" in theirs.read_text()


@in_a_thread
def test_unwritable_kubeconfig_invalidates_no_token(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        token = server.token
        server.stop()

    message = refused(*place(tmp_path), "--kubeconfig-out", "/dev/null/kubeconfig")

    assert "/dev/null/kubeconfig cannot be written" in message
    with running(tmp_path) as server:
        assert token == server.token


@in_a_thread
def test_damaged_database(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.stop()
    database = server.folder / "bramley.db"
    content = b"this is not a database" * 1000
    database.write_bytes(content)
    for side in ("bramley.db-wal", "bramley.db-shm"):
        (server.folder / side).unlink(missing_ok=True)

    message = refused(*place(tmp_path), "--kubeconfig-out", str(server.kubeconfig))

    assert str(database) in message
    assert database.read_bytes() == content


@in_a_thread
def test_database_of_a_later_release(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.stop()
    with closing(sqlite3.connect(server.folder / "bramley.db")) as database:
        database.execute("PRAGMA user_version = 9999")

    message = refused(*place(tmp_path), "--kubeconfig-out", str(server.kubeconfig))

    assert "newer" in message


@pytest.mark.parametrize("name", ["tls/ca.key", "tls/ca.crt", "tokens.json"])
def test_damaged_secrets(name: str, tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.stop()
    (server.folder / name).write_text("damaged")

    message = refused(*place(tmp_path), "--kubeconfig-out", str(server.kubeconfig))

    assert "restore" in message


@in_a_thread
def test_invalid_address(tmp_path: Path) -> None:
    message = refused("--data-dir", str(tmp_path / "data"), "--listen", "6443")

    assert "write it like 127.0.0.1:6443" in message


@in_a_thread
def test_environment_is_named_when_it_is_what_is_wrong(tmp_path: Path) -> None:
    environment = clean_environment(BRAMLEY_LISTEN="nonsense")

    message = refused("--data-dir", str(tmp_path / "data"), environment=environment)

    assert "nonsense" in message


@in_a_thread
def test_debug_adds_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "data").touch()

    done = failed_run("apiserver", *place(tmp_path), "--log-level", "debug")

    assert done.returncode == 2
    assert "Traceback" in done.stderr
