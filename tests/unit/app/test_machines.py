"""The composition of `bramley machines`: files, credentials, the URL for agents, and the definitions that it requires."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bramley.api import cluster_api, crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import ConfigMap, Namespace
from bramley.api.meta import ObjectMeta
from bramley.app import agent_server, embedded, machine_artifacts, machine_definitions
from bramley.app.machine_artifacts import ArtifactSettings, Program
from bramley.app.machines import (
    HostOptions,
    ScalewayCredentials,
    Settings,
    host_defaults,
    provider_of,
)
from bramley.base.errors import AlreadyExists, BadConfiguration, InvalidSpec, LeaseLost
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind, Manifest, Platform
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.config_loader import POD_FILES
from bramley.kube.tls import Trust
from bramley.sim.macos import stand_ins
from tests import virtual_time

PYTHON, CODE = "3.13.1+cccccccccccc", "0.1.0+aaaaaaaaaaaa"
RUNNER = "actions-runner-osx-arm64-2.330.0.tar.gz"
KEYS = {
    "SCW_ACCESS_KEY": "SCW" + "A" * 17,
    "SCW_SECRET_KEY": "11111111-1111-4111-8111-111111111111",
    "SCW_DEFAULT_PROJECT_ID": "22222222-2222-4222-8222-222222222222",
}


def an_archive(path: Path, kind: Kind, *, interpreter: str = PYTHON) -> Path:
    """Write an archive of the agent that has only its manifest."""
    is_code = kind is Kind.CODE
    manifest = Manifest(
        kind=kind,
        name="tart-kubelet" if is_code else "tart-kubelet-python",
        version=CODE if is_code else PYTHON,
        platform=Platform.MACOS_ARM64,
        python="3.13",
        interpreter=interpreter if is_code else "",
        content="0" * 64,
    )
    path.write_bytes(stand_ins.archive({agent_archive.MANIFEST: msgspec.json.encode(manifest)}))
    return path


def files(folder: Path) -> ArtifactSettings:
    """Write all files, and return where they are."""
    tart = folder / "tart.tar.gz"
    tart.write_bytes(stand_ins.archive({"a": b"a"}))
    runners = folder / "runners"
    runners.mkdir()
    (runners / RUNNER).write_bytes(stand_ins.archive({"run": b"run"}))
    digest = hashlib.sha256((runners / RUNNER).read_bytes()).hexdigest()
    (runners / f"{RUNNER}.sha256").write_text(f"{digest}  {RUNNER}\n")
    return ArtifactSettings(
        agent=an_archive(folder / "agent.tar.gz", Kind.CODE),
        interpreter=an_archive(folder / "interpreter.tar.gz", Kind.INTERPRETER),
        tart=Program(tart, "2.32.1"),
        actions_runners=runners,
    )


async def test_files_are_loaded_with_their_versions(tmp_path: Path) -> None:
    found = await machine_artifacts.load(files(tmp_path))

    assert found.agent.version == CODE
    assert found.interpreter.version == PYTHON
    assert found.tart is not None
    assert found.tart.version == "2.32.1"
    assert list(found.actions_runners) == ["2.330.0"]
    assert found.tailscale is None


async def refusal(settings: ArtifactSettings) -> str:
    with pytest.raises((BadConfiguration, InvalidSpec, LeaseLost)) as caught:
        await machine_artifacts.load(settings)
    return str(caught.value)


async def test_missing_or_wrong_file_names_its_flag(tmp_path: Path) -> None:
    good = files(tmp_path)
    missing, text = tmp_path / "missing", tmp_path / "text"
    text.write_text("text")

    assert "--tartkubelet-archive-path" in await refusal(replace(good, agent=missing))
    assert "--tartkubelet-archive-path" in await refusal(replace(good, agent=good.interpreter))
    assert "--tartkubelet-interpreter-path" in await refusal(replace(good, interpreter=missing))
    assert "--tart-tarball-path" in await refusal(replace(good, tart=Program(text, "1.0")))
    assert "--tart-version" in await refusal(replace(good, tart=Program(good.tart.path, "new")))
    exporter = Program(missing, "1.8.2")
    assert "--node-exporter-binary-path" in await refusal(replace(good, node_exporter=exporter))
    assert "--actions-runner-archives" in await refusal(replace(good, actions_runners=missing))


async def test_code_that_needs_another_interpreter_is_refused(tmp_path: Path) -> None:
    good = files(tmp_path)
    an_archive(good.agent, Kind.CODE, interpreter="3.12.0+dddddddddddd")

    assert "needs the interpreter 3.12.0" in await refusal(good)


@pytest.mark.parametrize(
    ("digest", "message"),
    [
        (None, "No such file"),
        ("no digest", "must contain one SHA-256"),
        ("0" * 64, "fetch it again"),
    ],
)
async def test_archive_of_the_runner_needs_its_digest(
    digest: str | None, message: str, tmp_path: Path
) -> None:
    good = files(tmp_path)
    beside = tmp_path / "runners" / f"{RUNNER}.sha256"
    beside.unlink()
    if digest is not None:
        beside.write_text(digest)

    assert message in await refusal(good)


def test_without_credentials_there_is_no_provider() -> None:
    assert ScalewayCredentials({"PATH": "/bin"}).find() is None


def test_incomplete_credentials_are_named_and_not_shown() -> None:
    some = {"SCW_ACCESS_KEY": KEYS["SCW_ACCESS_KEY"]}

    with pytest.raises(BadConfiguration, match="SCW_SECRET_KEY, SCW_DEFAULT_PROJECT_ID") as caught:
        ScalewayCredentials(some).find()
    assert KEYS["SCW_ACCESS_KEY"] not in str(caught.value)


def test_rotated_key_in_the_folder_is_used_without_a_restart(tmp_path: Path) -> None:
    for name, value in KEYS.items():
        (tmp_path / name).write_text(value + "\n")
    account = ScalewayCredentials({}, tmp_path).find()
    assert account is not None
    before = account()

    (tmp_path / "SCW_ACCESS_KEY").write_text("SCW" + "B" * 17)

    assert before.access_key == "SCW" + "A" * 17
    assert account().access_key == "SCW" + "B" * 17


async def test_provider_sends_nothing_without_the_leadership() -> None:
    def check() -> None:
        raise LeaseLost("another process leads")

    make = provider_of(ScalewayCredentials(KEYS).find())

    assert make is not None
    with pytest.raises(LeaseLost):
        await make(check).hosts("fr-par-1")
    assert provider_of(None) is None


@asynccontextmanager
async def a_cluster() -> AsyncIterator[Client]:
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock, controllers=False) as (api, token),
        Client(api.transport(token), clock=clock) as kube,
    ):
        yield kube


async def publish(kube: Client, text: str) -> None:
    """Publish the server as kubeadm does."""
    with suppress(AlreadyExists):
        await kube.create(Namespace(metadata=ObjectMeta(name="kube-public")))
    metadata = ObjectMeta(name="cluster-info", namespace="kube-public")
    await kube.create(ConfigMap(metadata=metadata, data={"kubeconfig": text}))


PUBLISHED = "clusters: [{cluster: {server: 'https://public.example:6443'}}]"


@pytest.mark.parametrize(
    ("own", "published", "explicit", "expected"),
    [
        ("https://10.0.0.1:6443", PUBLISHED, "https://a.example", "https://a.example"),
        ("https://127.0.0.1:6443", None, "https://127.0.0.1:6443", "https://127.0.0.1:6443"),
        ("https://127.0.0.1:6443", PUBLISHED, "", "https://public.example:6443"),
        ("https://10.0.0.1:6443", None, "", "https://10.0.0.1:6443"),
        ("https://10.0.0.1:6443", "clusters: []", "", "https://10.0.0.1:6443"),
        ("https://10.0.0.1:6443", "{", "", "https://10.0.0.1:6443"),
    ],
)
async def test_server_for_agents(
    own: str, published: str | None, explicit: str, expected: str
) -> None:
    async with a_cluster() as kube:
        if published is not None:
            await publish(kube, published)

        assert await agent_server.find(kube, ClientConfig(own), explicit) == expected


@pytest.mark.parametrize(
    "config",
    [
        ClientConfig("https://127.0.0.1:6443"),
        ClientConfig("https://localhost:6443"),
        ClientConfig("https://[::1]:6443"),
        # Of a Pod: the Service of the API server.
        ClientConfig("https://10.96.0.1:443", Trust("ca", source=str(POD_FILES / "ca.crt"))),
    ],
)
async def test_server_that_macs_cannot_reach_is_refused(config: ClientConfig) -> None:
    async with a_cluster() as kube:
        with pytest.raises(BadConfiguration, match="--api-server-url"):
            await agent_server.find(kube, config, "")


async def test_server_without_a_trusted_authority_is_refused() -> None:
    config = ClientConfig("https://10.0.0.1:6443", Trust(verify=False))
    async with a_cluster() as kube:
        for explicit in ("", "https://a.example"):
            with pytest.raises(BadConfiguration, match="certificate authority"):
                await agent_server.find(kube, config, explicit)


def test_client_authority_is_that_of_the_cluster_unless_a_file_is_given(tmp_path: Path) -> None:
    config = ClientConfig("https://10.0.0.1:6443", Trust("cluster"))
    file = tmp_path / "ca.crt"
    file.write_text("-----BEGIN CERTIFICATE-----\n")

    assert agent_server.client_authority(None, config) == b"cluster"
    assert agent_server.client_authority(file, config).startswith(b"-----BEGIN")
    file.write_text("-----BEGIN PRIVATE KEY-----\n")
    for path in (file, tmp_path / "missing"):
        with pytest.raises(BadConfiguration, match="--kubelet-client-ca-file"):
            agent_server.client_authority(path, config)


async def test_hosts_get_the_files_and_the_settings_of_the_manager(tmp_path: Path) -> None:
    config = ClientConfig("https://10.0.0.1:6443", Trust("cluster"))
    hosts = HostOptions(cpu=4, max_pods=1, token_lifetime=timedelta(hours=1))
    async with a_cluster() as kube:
        found = await host_defaults(kube, config, Settings(artifacts=files(tmp_path), hosts=hosts))

    assert found.artifacts.agent.version == CODE
    assert (found.server, found.client_authority) == ("https://10.0.0.1:6443", b"cluster")
    assert (found.host_cpu, found.max_pods, found.token_lifetime) == (4, 1, timedelta(hours=1))


async def install(kube: Client, *manifests: dict[str, Any]) -> None:
    for manifest in manifests:
        await kube.create_wire(CustomResourceDefinition.resource, manifest)


async def test_missing_definitions_are_named_with_the_remedy() -> None:
    async with a_cluster() as kube:
        with pytest.raises(BadConfiguration, match="bramley crds"):
            await machine_definitions.require(kube, is_rented=False)

        await install(kube, *crds.manifests())
        await machine_definitions.require(kube, is_rented=False)
        with pytest.raises(BadConfiguration, match="Cluster API"):
            await machine_definitions.require(kube, is_rented=True)

        await install(kube, *cluster_api.manifests())
        await machine_definitions.require(kube, is_rented=True)


@pytest.mark.parametrize(("part", "field"), [("spec", "egress"), ("status", "step")])
async def test_older_definition_is_refused(part: str, field: str) -> None:
    manifests = crds.manifests()
    name = "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io"
    older = next(each for each in manifests if each["metadata"]["name"] == name)
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"][part]["properties"][field]
    async with a_cluster() as kube:
        await install(kube, *manifests, *cluster_api.manifests())

        with pytest.raises(BadConfiguration, match=rf"{name} is older and lacks {part}\.{field}"):
            await machine_definitions.require(kube, is_rented=True)
