from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.credentials import Credential
from bramley.kube.exec_plugin import ExecPlugin, Plugin
from tests.programs import run_program
from tests.unit.kube.http_servers import eventually

pytestmark = pytest.mark.real_time

VERSION = "client.authentication.k8s.io/v1"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class SetClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def now(self) -> datetime:
        return NOON + self.passed

    def monotonic(self) -> float:
        return self.passed.total_seconds()


def credential(version: str = VERSION, **status: object) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


class Program:
    """A shell script that plays the plugin and counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "plugin"
        self.runs = folder / "runs"
        self.output = folder / "output"

    def does(self, script: str) -> None:
        self.path.write_text(f'#!/bin/sh\necho run >>"{self.runs}"\n{script}\n')
        self.path.chmod(0o700)

    def prints(self, text: str) -> None:
        self.output.write_text(text)
        self.does(f'cat "{self.output}"')

    @property
    def times_run(self) -> int:
        return self.runs.read_text().count("run") if self.runs.exists() else 0


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def plugin(
    program: Program,
    *,
    clock: SetClock | None = None,
    deadline: timedelta = timedelta(seconds=20),
    environment: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    **fields: Any,
) -> ExecPlugin:
    hidden = {name: Secret(value) for name, value in (variables or {}).items()}
    return ExecPlugin(
        Plugin(
            command=str(program.path), source="config: users[x].exec", environment=hidden, **fields
        ),
        clock=clock or SetClock(),
        environment={"PATH": os.environ["PATH"], **(environment or {})},
        deadline=deadline,
    )


def shown(found: Credential) -> str:
    assert found.authorization
    return found.authorization.reveal()


async def test_the_token_is_kept_until_it_expires(program: Program) -> None:
    clock = SetClock()
    credentials = plugin(program, clock=clock)
    program.prints(credential(token="one", expirationTimestamp="2026-01-01T13:00:00Z"))

    assert shown(await credentials.current()) == "Bearer one"
    clock.passed = timedelta(minutes=59)
    assert shown(await credentials.current()) == "Bearer one"
    assert program.times_run == 1

    program.prints(credential(token="two"))
    clock.passed = timedelta(minutes=60)
    assert shown(await credentials.current()) == "Bearer two"
    clock.passed = timedelta(days=100)
    assert shown(await credentials.current()) == "Bearer two"
    assert program.times_run == 2


async def test_concurrent_callers_share_one_run(program: Program) -> None:
    program.prints(credential(token="one"))
    credentials = plugin(program)

    await asyncio.gather(*(credentials.current() for _ in range(10)))

    assert program.times_run == 1


async def test_a_refused_token_is_renewed_a_limited_number_of_times(program: Program) -> None:
    clock = SetClock()
    credentials = plugin(program, clock=clock)
    program.prints(credential(token="one"))
    used = await credentials.current()
    program.prints(credential(token="two"))

    assert not await credentials.refused(used)
    clock.passed = timedelta(seconds=11)
    assert await credentials.refused(used)
    assert shown(await credentials.current()) == "Bearer two"
    assert await credentials.refused(used)
    assert not await credentials.refused(await credentials.current())
    assert program.times_run == 2


async def test_a_plugin_may_give_a_certificate(program: Program) -> None:
    program.prints(credential(clientCertificateData="CERT", clientKeyData="hunter2"))

    found = await plugin(program).current()

    assert found.authorization is None
    assert found.certificate
    assert found.certificate.certificate == "CERT"
    assert found.certificate.key.reveal() == "hunter2"
    assert "hunter2" not in repr(found)


async def test_plugin_gets_arguments_environment_and_exec_info(
    program: Program, tmp_path: Path
) -> None:
    recorded = tmp_path / "recorded"
    program.output.write_text(credential(token="one"))
    program.does(
        f'echo "$1 $2 $EXTRA $KEPT" >"{recorded}"; echo "$KUBERNETES_EXEC_INFO" >>"{recorded}"; '
        f'read line && echo "$line" >>"{recorded}"; cat "{program.output}"'
    )
    credentials = plugin(
        program,
        environment={"KEPT": "kept"},
        variables={"EXTRA": "extra"},
        arguments=("get", "a token"),
        cluster={"server": "https://example"},
    )

    await credentials.current()

    first, request = recorded.read_text().splitlines()
    assert first == "get a token extra kept"
    assert json.loads(request) == {
        "apiVersion": VERSION,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://example"}},
    }


async def test_variables_of_the_kubeconfig_reach_the_plugin(program: Program) -> None:
    beginning, end = credential(token="XXX").split("XXX")
    program.does(f"printf '%s%s%s' '{beginning}' \"$TOKEN\" '{end}'")

    credentials = plugin(program, environment={"TOKEN": "no"}, variables={"TOKEN": "yes"})

    assert shown(await credentials.current()) == "Bearer yes"


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("hunter2", "not an ExecCredential in JSON"),
        ('{"kind": "ExecCredential", "status": {"token": ["hunter2"]}}', "not an ExecCredential"),
        (credential(version="client.authentication.k8s.io/v1beta1", token="hunter2"), "v1beta1"),
        (f'{{"apiVersion": "{VERSION}", "kind": "Pod"}}', "'Pod'"),
        (f'{{"apiVersion": "{VERSION}", "kind": "ExecCredential"}}', "no status"),
        (credential(), "neither a token nor a client certificate"),
        (credential(token="hunter2 hunter2"), "not contain a valid token"),
        (credential(clientCertificateData="hunter2"), "neither"),
        ("", "not an ExecCredential"),
    ],
)
async def test_invalid_credential_is_reported_without_showing_it(
    program: Program, output: str, problem: str
) -> None:
    program.prints(output)

    with pytest.raises(errors.BadConfiguration, match=problem) as caught:
        await plugin(program).current()

    assert str(caught.value).startswith("config: users[x].exec: exec plugin ")
    assert "hunter2" not in f"{caught.value!r}{caught.value.__cause__!r}"


async def test_failed_plugin_is_unavailable_and_run_again(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program.does('echo "no network, password $PASSWORD" >&2; exit 3')
    credentials = plugin(program, variables={"PASSWORD": "hunter2"})

    with caplog.at_level(logging.DEBUG), pytest.raises(errors.ApiUnavailable) as caught:
        await credentials.current()

    assert "code 3: no network, password [hidden]" in str(caught.value)
    assert "hunter2" not in caplog.text + repr(vars(credentials))
    program.prints(credential(token="one"))
    assert shown(await credentials.current()) == "Bearer one"


async def test_missing_plugin_is_reported_with_the_install_hint(program: Program) -> None:
    with pytest.raises(errors.BadConfiguration, match=r"No such file.*; install it from here"):
        await plugin(program, install_hint="install it from here\n").current()


async def test_a_plugin_that_hangs_is_killed_with_its_children(
    program: Program, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    program.does(f'sleep 600 & echo $! $$ >"{pids}"; wait')

    with pytest.raises(errors.ApiUnavailable, match="did not end within"):
        await plugin(program, deadline=timedelta(milliseconds=500)).current()

    child, parent = (int(pid) for pid in pids.read_text().split())
    await eventually(lambda: not alive(parent) and not alive(child))


async def test_a_plugin_that_leaves_a_child_with_the_pipe_is_timed_out(program: Program) -> None:
    program.does("sleep 600 & exit 0")

    with pytest.raises(errors.ApiUnavailable, match="did not end within"):
        await plugin(program, deadline=timedelta(milliseconds=500)).current()


async def test_cancelling_the_caller_kills_the_plugin(program: Program, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program.does(f'echo $$ >"{pids}"; sleep 600')

    async with asyncio.TaskGroup() as group:
        task = group.create_task(plugin(program).current())
        await eventually(lambda: pids.exists() and pids.read_text().strip() != "")
        task.cancel()

    await eventually(lambda: not alive(int(pids.read_text())))


@pytest.mark.parametrize("turns", range(1, 8))
async def test_cancelling_the_caller_while_the_plugin_starts_does_not_hang(
    program: Program, turns: int
) -> None:
    program.does("sleep 600 & wait")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(plugin(program).current())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()

    assert task.cancelled()


async def test_output_of_a_plugin_is_bounded(program: Program) -> None:
    program.does("head -c 3000000 /dev/zero")

    with pytest.raises(errors.BadConfiguration, match="not an ExecCredential"):
        await plugin(program).current()


def alive(pid: int) -> bool:
    recorded = run_program(["ps", "-o", "stat=", "-p", str(pid)])
    return bool(recorded.stdout.strip()) and not recorded.stdout.startswith("Z")
