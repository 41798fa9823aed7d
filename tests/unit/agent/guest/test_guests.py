"""A guest's share over the lifecycle of its Pod."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from bramley.agent.guest import environment
from bramley.agent.guest.environment import Unresolved
from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.guest.tokens import Tokens
from bramley.agent.metrics import AgentMetrics
from bramley.api.pod import Pod
from tests import virtual_time
from tests.unit.agent.guest.env_file import parse_env_file
from tests.unit.agent.guest.pods import a_pod
from tests.unit.agent.guest.test_environment import Objects, from_field, from_secret
from tests.unit.agent.guest.test_tokens import Issuer

VM = "ns-build-0123456789ab"


def guests_of(root: Path, *, issuer: Issuer, objects: Objects | None = None) -> Guests:
    folders = UserData(root)
    tokens = Tokens(
        issuer,
        folders,
        clock=virtual_time.clock(),
        rng=random.Random(1),
        metrics=AgentMetrics(CollectorRegistry()),
    )
    node_facts = environment.NodeFacts(node="mac")
    return Guests(objects or Objects(), folders, tokens, node_facts=node_facts)


def with_automount(pod: Pod, wants: bool | None) -> Pod:
    spec = msgspec.structs.replace(pod.spec, automount_service_account_token=wants)
    return msgspec.structs.replace(pod, spec=spec)


def variable(source: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "A", "valueFrom": source}]


async def test_guest_gets_its_variables_and_its_token(tmp_path: Path) -> None:
    pod = with_automount(a_pod(env=[{"name": "A", "value": "1\n2"}]), wants=True)

    shares = await guests_of(tmp_path, issuer=Issuer()).prepare(pod, VM)

    assert (shares.env / "tuist.env").read_text() == "A=1\\n2\n"
    assert (shares.env / "sa_token").exists()
    assert shares.status.is_dir()


@pytest.mark.parametrize("wants", [None, False])
async def test_guest_without_automount_gets_no_token(tmp_path: Path, wants: bool | None) -> None:
    issuer = Issuer()
    all_guests = guests_of(tmp_path, issuer=issuer)
    pod = with_automount(a_pod(), wants=wants)

    shares = await all_guests.prepare(pod, VM)
    all_guests.renew_token(pod, VM)

    assert not (shares.env / "sa_token").exists()
    assert issuer.issued_tokens == []


async def test_nothing_is_written_until_every_variable_is_resolved(tmp_path: Path) -> None:
    pod = a_pod(env=variable(from_secret("gone", "k")))

    with pytest.raises(Unresolved):
        await guests_of(tmp_path, issuer=Issuer()).prepare(pod, VM)

    assert UserData(tmp_path).vms() == []


async def test_address_is_written_once_it_is_known(tmp_path: Path) -> None:
    all_guests = guests_of(tmp_path, issuer=Issuer())
    env = variable(from_field("status.podIP"))
    shares = await all_guests.prepare(a_pod(env=env), VM)
    before = (shares.env / "tuist.env").read_text()

    await all_guests.write_address(a_pod(env=env, status={"podIP": "192.168.64.9"}), VM)

    assert before == ""
    assert parse_env_file((shares.env / "tuist.env").read_text()) == {"A": "192.168.64.9"}


async def test_address_that_no_variable_uses_is_not_written(tmp_path: Path) -> None:
    all_guests = guests_of(tmp_path, issuer=Issuer())

    await all_guests.write_address(a_pod(status={"podIP": "192.168.64.9"}), VM)

    assert UserData(tmp_path).vms() == []


async def test_report_of_an_ended_guest_is_read_and_its_data_removed(tmp_path: Path) -> None:
    all_guests = guests_of(tmp_path, issuer=Issuer())
    shares = await all_guests.prepare(with_automount(a_pod(), wants=True), VM)
    (shares.status / "runner-rc").write_text("3")
    (shares.status / "runner.log").write_text("bye\n")

    assert all_guests.report(VM).code == 3
    await all_guests.remove(VM)
    await all_guests.remove(VM)

    assert UserData(tmp_path).vms() == []
    assert all_guests.report(VM).code is None


async def test_data_that_could_not_be_removed_is_removed_with_the_next(tmp_path: Path) -> None:
    (tmp_path / ".aside-1" / "status" / "deep").mkdir(parents=True)

    await guests_of(tmp_path, issuer=Issuer()).remove(VM)

    assert not (tmp_path / ".aside-1").exists()
