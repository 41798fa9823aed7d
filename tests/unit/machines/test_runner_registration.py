"""The registration of a builder's runner with a GitHub App, from a Secret to a token of the simulated GitHub."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from bramley.api.scaleway_machine import GHActionsRunner
from bramley.base import errors
from bramley.kube.client import Client
from bramley.kube.transport import Response
from bramley.machines.runner_registration import (
    GitHubAppResolver,
    RegisteredRunner,
    Resolver,
    RunnerDirectory,
)
from bramley.sim.github.faults import Fault
from bramley.sim.github.records import Runner
from tests import github_keys, github_peer, virtual_time
from tests.github_peer import Peer
from tests.unit.kube.fake_transport import FakeTransport, answer, refusal

SPEC = GHActionsRunner(
    gh_runner_version="2.330.0",
    gh_org="acme",
    gh_runner_labels="self-hosted, macos,,builder ",
    gh_app_secret_name="github",
)
KEY = github_keys.pem(github_keys.rsa_key())


def secret(**data: bytes) -> FakeTransport:
    return FakeTransport(secret_answer(**data))


def secret_answer(**data: bytes) -> Response:
    named = {key.replace("_", "-"): base64.b64encode(value).decode() for key, value in data.items()}
    return answer(200, {"metadata": {"name": "github"}, "data": named})


def secret_with(peer: Peer, key: RSAPrivateKey) -> Response:
    id = str(peer.github.accounts["acme"].installation_id).encode()
    return secret_answer(app_id=b"1", installation_id=id, private_key=github_keys.pem(key))


def peer() -> Peer:
    return github_peer.peer(github_peer.simulated_github(virtual_time.clock()))


def resolver(transport: FakeTransport, peer: Peer) -> Resolver:
    return target(transport, peer)


def directory(transport: FakeTransport, peer: Peer) -> RunnerDirectory:
    return target(transport, peer)


def target(transport: FakeTransport, peer: Peer) -> GitHubAppResolver:
    return GitHubAppResolver(
        Client(transport, clock=virtual_time.clock()), peer.client, clock=virtual_time.clock()
    )


def whole(peer: Peer, installation: str = "") -> FakeTransport:
    id = installation or str(peer.github.accounts["acme"].installation_id)
    return secret(app_id=b" 1\n", installation_id=f"\t{id} \n".encode(), private_key=KEY)


async def test_without_a_spec_no_api_is_called() -> None:
    github, transport = peer(), FakeTransport()

    assert await resolver(transport, github).resolve("ns", None) is None

    assert transport.requests == []
    assert github.client.rate_limits.budget("app") is None


async def test_ids_are_trimmed_and_the_token_is_fresh_and_hidden() -> None:
    github = peer()
    transport = whole(github)

    found = await resolver(transport, github).resolve("ns", SPEC)

    assert found is not None
    assert (found.organisation, found.version) == ("acme", "2.330.0")
    assert found.labels == ("self-hosted", "macos", "builder")
    assert found.expires_at > virtual_time.clock().now() + timedelta(minutes=50)
    assert found.token.reveal() not in repr(found) + str(found)
    assert [each.path for each in transport.requests] == ["/api/v1/namespaces/ns/secrets/github"]


@pytest.mark.parametrize("form", ["pkcs1", "pkcs8"])
async def test_private_key_is_taken_as_it_is(form: str) -> None:
    github = peer()
    id = str(github.github.accounts["acme"].installation_id).encode()
    pem = github_keys.pem(github_keys.rsa_key(), form)

    transport = secret(app_id=b"1", installation_id=id, private_key=pem)

    assert await resolver(transport, github).resolve("ns", SPEC)


async def test_secret_name_is_required() -> None:
    transport = FakeTransport()
    spec = GHActionsRunner(gh_runner_version="2.330.0")

    with pytest.raises(errors.InvalidSpec, match="ghAppSecretName"):
        await resolver(transport, peer()).resolve("ns", spec)
    assert transport.requests == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, "app-id, installation-id, private-key"),
        ({"app_id": b" \n", "installation_id": b"1"}, "app-id, private-key"),
        ({"app_id": b"1", "private_key": b"\n"}, "installation-id, private-key"),
        ({"app_id": b"1", "installation_id": b"1"}, "private-key"),
    ],
)
async def test_all_missing_fields_are_in_one_error(data: dict[str, bytes], expected: str) -> None:
    with pytest.raises(errors.InvalidSpec) as raised:
        await resolver(secret(**data), peer()).resolve("ns", SPEC)

    assert str(raised.value) == f"Secret ns/github: missing {expected}"


async def test_secret_that_does_not_exist_is_named() -> None:
    transport = FakeTransport(refusal(404, "NotFound"))

    with pytest.raises(errors.InvalidSpec, match="Secret ns/github does not exist"):
        await resolver(transport, peer()).resolve("ns", SPEC)


@pytest.mark.parametrize(
    ("app_id", "installation", "key", "error"),
    [
        (b"1", b"one", KEY, errors.InvalidSpec),
        (b"1", b"\xff", KEY, errors.InvalidSpec),
        (b"a/b", b"1", KEY, errors.BadConfiguration),
        (b"1", b"1", b"canary", errors.BadConfiguration),
    ],
)
async def test_invalid_values_are_refused_without_showing_them(
    app_id: bytes, installation: bytes, key: bytes, error: type[errors.Refused]
) -> None:
    transport = secret(app_id=app_id, installation_id=installation, private_key=key)

    with pytest.raises(error) as raised:
        await resolver(transport, peer()).resolve("ns", SPEC)

    assert "canary" not in str(raised.value)


async def test_app_without_the_organisation_is_refused() -> None:
    github = peer()

    with pytest.raises(errors.Refused, match="does not manage the organisation acme"):
        await resolver(whole(github, "999"), github).resolve("ns", SPEC)


async def test_github_that_is_down_is_unavailable_and_a_retry_helps() -> None:
    github = peer()
    resolve = resolver(whole(github), github).resolve
    github.github.faults.add(Fault(kind="status", status=503, path="*/registration-token", times=4))

    with pytest.raises(errors.Unavailable):
        await resolve("ns", SPEC)

    assert await resolve("ns", SPEC)


def add_runner(github: Peer, name: str, *, org: str = "acme", job: bool = False) -> Runner:
    """Register a runner that is online, and runs a job or none."""
    actions = github.github.actions
    runner = actions.register(f"/orgs/{org}", name, ["macos"], 1, is_ephemeral=False)
    if job:
        actions.queue_job(github.github.accounts[org].repositories["app"], labels=["macos"])
    return actions.connect(actions.jit_config(runner))


async def test_runner_is_found_by_its_name_with_its_state() -> None:
    github = peer()
    find = directory(whole(github), github).find
    busy, idle = add_runner(github, "mac-1", job=True), add_runner(github, "mac-11")
    offline = github.github.actions.register("/orgs/acme", "mac-2", ["macos"], 1)

    assert await find("ns", SPEC, "mac-1") == RegisteredRunner(busy.id, online=True, busy=True)
    assert await find("ns", SPEC, "mac-11") == RegisteredRunner(idle.id, online=True, busy=False)
    assert await find("ns", SPEC, "mac-2") == RegisteredRunner(offline.id, online=False, busy=False)
    assert await find("ns", SPEC, "mac") is None


async def test_only_the_runner_with_this_name_is_removed() -> None:
    github = peer()
    remove = directory(whole(github), github).remove
    other = add_runner(github, "mac-1")
    add_runner(github, "mac-2")

    assert await remove("ns", SPEC, "mac-2")
    assert not await remove("ns", SPEC, "mac-2")

    assert [*github.github.actions.runners.values()] == [other]


async def test_runner_that_was_removed_meanwhile_is_no_error() -> None:
    github = peer()
    add_runner(github, "mac-1")
    github.github.faults.add(Fault(kind="status", status=404, method="DELETE"))

    assert not await directory(whole(github), github).remove("ns", SPEC, "mac-1")


async def test_busy_runner_is_not_removed() -> None:
    github = peer()
    add_runner(github, "mac-1", job=True)

    with pytest.raises(errors.BadRequest, match="mac-1 of acme cannot be removed while it runs"):
        await directory(whole(github), github).remove("ns", SPEC, "mac-1")

    assert github.github.actions.runners


async def test_directory_of_an_app_without_the_organisation_is_refused() -> None:
    github = peer()
    runners = directory(whole(github, "999"), github)

    for call in (runners.find, runners.remove):
        with pytest.raises(errors.Refused, match="does not manage the organisation acme"):
            await call("ns", SPEC, "mac-1")


async def test_token_is_used_by_all_calls_until_the_secret_changes() -> None:
    github, second = peer(), github_keys.rsa_key("second")
    github.github.access.keys["second"] = second.public_key()
    before, after = (secret_with(github, each) for each in (github_keys.rsa_key(), second))
    transport = FakeTransport(before, before, before, after)
    shared = target(transport, github)

    assert await shared.resolve("ns", SPEC)
    assert await shared.find("ns", SPEC, "mac-1") is None
    assert not await shared.remove("ns", SPEC, "mac-1")
    assert len(github.github.access.valid_tokens()) == 1
    del github.github.access.keys["first"]
    github.github.access.revoke_tokens()
    assert await shared.find("ns", SPEC, "mac-1") is None
    assert len(github.github.access.valid_tokens()) == 1
    assert len(transport.requests) == 4
