"""A bootstrap with a canary in every secret field and faults at every command with a secret: no output reveals one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import pytest

from bramley.app.ssh_options import SshOptions
from bramley.base.errors import UnsupportedHost
from bramley.cli import failures, host_output
from bramley.host import converge, preparation
from bramley.host.spec import Builder, MacSpec, Tailnet
from bramley.host.ssh import Credentials
from tests import virtual_time
from tests.scenarios.host_secrets import faulty_connections
from tests.scenarios.host_secrets.canaries import Canaries
from tests.scenarios.host_secrets.faulty_connections import (
    BuggyConnection,
    FaultyConnection,
    MakeFault,
)
from tests.scenarios.host_secrets.macs import (
    Output,
    bare,
    captured_output,
    connection_to,
    leaks_of,
    spec,
    steps,
    world_readable_files,
)

# The secret fields of a bootstrap, with their canaries; a new field needs one.
SECRET_FIELDS = {
    (MacSpec, "password"): "password",
    (MacSpec, "kubeconfig"): "token",
    (MacSpec, "registry_credentials"): "registry_password",
    (Tailnet, "auth_key"): "auth_key",
    (Builder, "token"): "runner_token",
    (Credentials, "private_keys"): "private_key",
    (Credentials, "password"): "password",
    (SshOptions, "password"): "password",
}


# All commands of a bootstrap that send a secret to the Mac.
SECRET_COMMANDS = [
    "sudo: check the password of m1",
    "sudo: allow m1 to use sudo without a password",
    "auto-login: check the password of m1",
    "auto-login: write the password of automatic login",
    "tailscale: write the auth key of tailscale",
    "kubeconfig: write the agent's kubeconfig",
    "registry-credentials: write the registry credentials of the agent",
    "actions-runner: register the runner at GitHub",
]


def no_leak(output: Output, canaries: Canaries, *more: str) -> None:
    assert canaries.seen_in(*output.texts(), *more) == []


def secret_fields(kind: type) -> Sequence[tuple[type, str]]:
    hints = get_type_hints(kind)
    return [
        (kind, each.name) for each in dataclasses.fields(kind) if "Secret" in str(hints[each.name])
    ]


async def test_every_secret_field_has_a_canary(tmp_path: Path) -> None:
    kinds = {kind for kind, _ in SECRET_FIELDS}
    assert {field for kind in kinds for field in secret_fields(kind)} == set(SECRET_FIELDS)

    canaries = Canaries()
    whole = spec(tmp_path, canaries)
    assert whole.password == canaries.password
    assert whole.tailnet
    assert whole.tailnet.auth_key == canaries.auth_key
    assert whole.kubeconfig
    assert canaries.seen_in(whole.kubeconfig.reveal()) == ["token"]
    assert whole.registry_credentials
    assert canaries.seen_in(whole.registry_credentials.reveal()) == ["registry_password in base64"]
    assert whole.builder
    assert whole.builder.token
    assert await whole.builder.token() == canaries.runner_token


@pytest.mark.parametrize(
    "make_fault", [faulty_connections.echo_input, faulty_connections.cut, faulty_connections.hang]
)
async def test_bootstrap_with_a_fault_at_every_command_with_a_secret(
    make_fault: MakeFault, tmp_path: Path
) -> None:
    canaries = Canaries()
    mac, clock = bare(tmp_path / "mac", canaries), virtual_time.clock()
    connection = FaultyConnection(mac, clock=clock, canaries=canaries, make_fault=make_fault)

    with captured_output() as output:
        await connection.apply_until_done(steps(tmp_path / "artifacts", canaries), output)

    assert connection.failed == SECRET_COMMANDS
    no_leak(output, canaries)
    assert leaks_of(tmp_path, canaries) == []
    assert len(list(world_readable_files(connection.mac.root))) > 10, "no files were checked"


@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as JSON"])
async def test_plans_and_progress_on_the_screen(
    *, as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    canaries = Canaries()
    planned, mac = steps(tmp_path / "artifacts", canaries), bare(tmp_path / "mac", canaries)
    display = host_output.ProgressDisplay("m1@mac", as_json=as_json)

    with captured_output() as output:
        host_output.print_plan(await converge.plan(connection_to(mac), planned), as_json=as_json)
        display.print_report(
            await converge.apply(connection_to(mac), planned, on_progress=display.on_progress)
        )
        # Now the Mac has secrets, which this plan would replace.
        others = steps(tmp_path / "artifacts", Canaries())
        host_output.print_plan(await converge.plan(connection_to(mac), others), as_json=as_json)

    shown = capsys.readouterr().out
    assert "write the password of automatic login" in shown
    no_leak(output, canaries, shown)


@pytest.mark.parametrize("by_hand", [False, True], ids=["bootstrap", "prepare"])
async def test_wrong_password(*, by_hand: bool, tmp_path: Path) -> None:
    canaries = Canaries()
    connection, wrong = connection_to(bare(tmp_path / "mac", canaries)), canaries.wrong_password
    planned = steps(tmp_path / "artifacts", canaries, password=wrong)

    with captured_output() as output:
        run = (
            preparation.prepare(connection, "m1", wrong)
            if by_hand
            else converge.apply(connection, planned)
        )
        with pytest.raises(UnsupportedHost, match="password is wrong") as caught:
            await run

    output.error(caught.value)
    no_leak(output, canaries)
    assert leaks_of(tmp_path, canaries) == []


async def test_unexpected_error_with_the_whole_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug, reported with its traceback, once at each command with a secret."""
    canaries = Canaries()
    connection = BuggyConnection(bare(tmp_path / "mac", canaries), clock=virtual_time.clock())
    planned = steps(tmp_path / "artifacts", canaries)

    with captured_output() as output:
        while not await connection.try_apply(planned, output):
            code = failures.report("bramley", connection.bug)
            assert code == failures.BUG

    printed = "".join(capsys.readouterr())
    assert {"check the password of m1", "write the agent's kubeconfig"} <= connection.failed
    assert "Traceback" in printed
    no_leak(output, canaries, printed)
