"""Errors at the start of `bramley dispatch` are one line that names the flag, and quote no secret."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from tests import github_keys
from tests.process.serving.processes import BRAMLEY, TIMEOUT_SECONDS, clean_environment
from tests.process.threaded import in_a_thread
from tests.programs import run_program

CANARY = "canary-0123456789abcdef"
KUBECONFIG = f"""
apiVersion: v1
kind: Config
current-context: a
clusters: [{{name: a, cluster: {{server: "https://127.0.0.1:1"}}}}]
users: [{{name: a, user: {{token: {CANARY}}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
"""
FILES = {
    "kubeconfig": KUBECONFIG,
    "secret": f"{CANARY}\n",
    "short": "canary\n",
    "three": f"{CANARY}1\n{CANARY}2\n{CANARY}3\n",
    "empty": "",
    "bad.yaml": "accounts: [1",
    "wrong.yaml": "weights: heavy\n",
    "bad-url": f"postgresql://u:{CANARY}@/x y?z\n",
}
KEY, SECRET, URL = "--github-private-key-file", "--webhook-secret-file", "--database-url-file"
USAGE = 2

CASES = [
    ("--listen", "nonsense", "is not host:port"),
    ("--listen", "127.0.0.1:99999", "is not a port"),
    ("--metrics-bind-address", "nonsense", "is not host:port"),
    ("--health-probe-bind-address", "nonsense", "is not host:port"),
    ("--database", f"postgres://u:{CANARY}@host/x", "use --database-url-file"),
    ("--database", "sqlite:////dev/null/folder/file", "Not a directory"),
    ("--database", "sqlite:///", "Is a directory"),
    ("--database", "sqlite:///secret", "is not a database"),
    (URL, "none", "No such file"),
    (URL, "empty", "is empty"),
    (URL, "bad-url", "is invalid"),
    ("--accounts-file", "none", "No such file"),
    ("--accounts-file", "bad.yaml", "is not valid YAML"),
    ("--accounts-file", "wrong.yaml", "is invalid"),
    ("--github-api-url", "http://example.com", "must begin with https://"),
    ("--github-api-url", "nonsense", "must begin with https://"),
    ("--github-app-id", "", "missing"),
    (KEY, "none", "No such file"),
    (KEY, ".", "Is a directory"),
    (KEY, "secret", "found no PEM block"),
    (KEY, "empty", "is empty"),
    (SECRET, "none", "No such file"),
    (SECRET, ".", "Is a directory"),
    (SECRET, "empty", "is empty"),
    (SECRET, "binary", "is not text"),
    (SECRET, "short", "fewer than 16 characters"),
    (SECRET, "three", "more than two lines"),
    ("--kubeconfig", "none", "cannot be read"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("refusals")
    for name, content in FILES.items():
        (found / name).write_text(content)
    (found / "binary").write_bytes(b"\xff\xfe")
    return found


@pytest.fixture(scope="module")
def flags(folder: Path) -> dict[str, str]:
    """Return valid flags."""
    (folder / "app.pem").write_bytes(github_keys.pem(github_keys.rsa_key()))
    return {
        "--listen": "127.0.0.1:0",
        "--metrics-bind-address": "off",
        "--health-probe-bind-address": "off",
        "--kubeconfig": "kubeconfig",
        "--github-app-id": "1",
        KEY: "app.pem",
        SECRET: "secret",
    }


def refused(folder: Path, flags: dict[str, str]) -> str:
    arguments = [part for pair in flags.items() for part in pair]
    done = run_program(
        [BRAMLEY, "dispatch", *arguments],
        timeout=TIMEOUT_SECONDS,
        cwd=folder,
        env=clean_environment(),
    )
    assert done.returncode == USAGE, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("bramley: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(("flag", "value", "expected"), CASES)
@in_a_thread
def test_bad_value_is_one_line_that_names_the_flag(
    folder: Path, flags: dict[str, str], flag: str, value: str, expected: str
) -> None:
    message = refused(folder, {**flags, flag: value})

    assert flag in message
    assert expected in message
    assert CANARY not in message


@in_a_thread
def test_missing_flags_are_named_together(folder: Path) -> None:
    message = refused(folder, {"--kubeconfig": "kubeconfig"})

    assert f"--github-app-id, {KEY}, {SECRET} missing" in message


@in_a_thread
def test_address_in_use_touches_no_database(folder: Path, flags: dict[str, str]) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        given = {**flags, "--listen": address, "--database": "sqlite:///unused"}

        message = refused(folder, given)

    assert f"{address} is in use" in message
    assert not (folder / "unused").exists()
