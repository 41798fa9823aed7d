"""The addresses of agents, the credentials of the API server, and their connections."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.auth.bootstrap import KUBELET_CLIENT
from bramley.apiserver.nodes import kubelet_client
from bramley.apiserver.nodes.kubelet_client import (
    CERTIFICATE_LIFETIME,
    HttpKubeletClient,
    KubeletClient,
    KubeletCredentials,
)
from bramley.apiserver.nodes.usage import kubelets
from bramley.apiserver.pki import tls
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.kube.credentials import StaticCredentials
from bramley.kube.transport import Stream
from tests import virtual_time
from tests.unit.agent.serving.scene import scene


def a_node(*addresses: tuple[str, str], port: int = 0) -> dict[str, Any]:
    listed = [{"type": kind, "address": address} for kind, address in addresses]
    ports = {"kubeletEndpoint": {"Port": port}} if port else {}
    return {"status": {"addresses": listed, "daemonEndpoints": ports}}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (a_node(("InternalIP", "10.0.0.1")), "https://10.0.0.1:10250"),
        (a_node(("Hostname", "mac"), ("InternalIP", "10.0.0.1"), port=7), "https://10.0.0.1:7"),
        (a_node(("Hostname", "mac"), ("ExternalIP", "1.2.3.4")), "https://1.2.3.4:10250"),
        (a_node(("InternalIP", "fd00::1"), port=7), "https://[fd00::1]:7"),
        (a_node(("Hostname", "mac")), "https://mac:10250"),
    ],
)
def test_the_url_of_an_agent_comes_from_its_node(node: dict[str, Any], expected: str) -> None:
    assert kubelet_client.kubelet_url(node) == expected


def test_a_node_without_an_address_is_an_error_as_in_kube_apiserver() -> None:
    with pytest.raises(ApiError, match=r"known addresses: \[\{Pigeon home\}\]") as refusal:
        kubelet_client.kubelet_url(a_node(("Pigeon", "home")))
    assert refusal.value.code == 500


async def test_the_apis_certificate_is_renewed_in_time() -> None:
    made: list[tuple[str, timedelta]] = []

    def issue(name: str, lifetime: timedelta) -> tls.Identity:
        made.append((name, lifetime))
        return tls.Identity(b"certificate", Secret(f"key {len(made)}"))

    identity = KubeletCredentials(issue, virtual_time.clock())
    first = await identity.current()
    assert await identity.current() == first
    await asyncio.sleep(CERTIFICATE_LIFETIME.total_seconds() / 2)

    assert await identity.current() != first
    assert made == [(KUBELET_CLIENT, CERTIFICATE_LIFETIME)] * 2
    assert not await identity.refused(await identity.current())


@pytest.mark.real_time
async def test_closed_client_refuses_requests(tmp_path: Path) -> None:
    certificates = tls.Certificates(tmp_path)
    certificates.ensure()
    kubelet_client = HttpKubeletClient(
        StaticCredentials(), authority=certificates.authority.decode()
    )
    await kubelet_client.close()

    with pytest.raises(errors.ApiUnavailable):
        await kubelet_client.get("https://127.0.0.1:1", "/", within=timedelta(seconds=1))


@pytest.mark.real_time
async def test_agents_are_verified_if_an_authority_is_configured(tmp_path: Path) -> None:
    ours, theirs = tls.Certificates(tmp_path / "authority"), tls.Certificates(tmp_path / "theirs")
    for each in (ours, theirs):
        each.ensure()
    folder = tmp_path / "authority" / "tls"
    pair = {"certificate": folder / "serving.crt", "key": folder / "serving.key"}

    async with scene(tmp_path, **pair) as stage:

        def issue(name: str, lifetime: timedelta) -> tls.Identity:
            return stage.certificates.issue(name, lifetime=lifetime)

        url = stage.url("")
        for authority, checked, reached in (
            (ours, True, True),
            (theirs, True, False),
            (theirs, False, True),
        ):
            text = authority.authority.decode()
            found = kubelets(issue, authority=text, clock=SystemClock(), checked=checked)
            assert (await answers(found.client, url)) is reached
            await found.close()


async def answers(kubelet_client: KubeletClient, url: str) -> bool:
    try:
        answer = await kubelet_client.get(url, "/healthz", within=timedelta(seconds=5))
    except errors.ApiUnavailable:
        return False
    return answer.body == b"ok"


@pytest.mark.real_time
async def test_closing_ends_followed_logs_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:

        def issue(name: str, lifetime: timedelta) -> tls.Identity:
            return stage.certificates.issue(name, lifetime=lifetime)

        authority = stage.certificates.authority.decode()
        kubelet_client = kubelets(issue, authority=authority, clock=SystemClock()).client
        path, query = "/containerLogs/ns/p/vm", {"follow": "true"}
        async with kubelet_client.stream(stage.url(""), path, query) as stream:
            assert (await anext(stream.chunks)).startswith(b"one\n")
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                reading = group.create_task(rest(stream))
                await asyncio.sleep(0.1)
                await kubelet_client.close()
            assert await reading == "the server is shutting down"


async def rest(stream: Stream) -> str:
    """Return why a stream ended."""
    try:
        async for _ in stream.chunks:
            pass
    except errors.ApiUnavailable as error:
        return str(error)
    return ""
