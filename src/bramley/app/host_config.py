"""The configuration file of one Mac, for `bramley host`; errors name the fields of the file.

Paths in it are relative to the file. It contains no secrets but names files that do, so that it may be kept with other
configuration. The specification of a Mac has other field names, since the file is not its only source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bramley.api.names import machines
from bramley.app import config_files
from bramley.base.errors import BadConfiguration, Cause, InvalidSpec
from bramley.base.secret import Secret
from bramley.host import agent_archive, grammar
from bramley.host.agent_archive import Kind, Manifest
from bramley.host.agent_daemon import AgentJob
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.spec import AllowedNetwork, Builder, Egress, MacSpec, Tailnet
from bramley.host.steps.registry_credentials import RegistryCredentials

_REFERENCE = "docs/reference/host-config.md"
_NAMES = {
    "node_name": "node",
    "host_cpu": "cpu",
    "host_memory_mb": "memoryMb",
    "max_pods": "maxPods",
    "node_labels": "labels",
    "register_taints": "registerTaints",
    "provider_id": "providerId",
    "public_keys": "publicKeys",
    "cache_network": "egress.cacheNetwork",
    "private_network": "egress.privateNetwork",
    "cluster_dns": "egress.clusterDns",
    "allow": "egress.allow",
    "is_builder": "builder",
    "organisation": "ghActionsRunner.org",
    "runner_labels": "ghActionsRunner.labels",
    "group": "ghActionsRunner.group",
    "vm_boot_timeout_seconds": "vmBootTimeoutSeconds",
    "dhcp_lease_seconds": "dhcpLeaseSeconds",
    "node_ip": "nodeIp",
    "kubelet_bind_address": "listen.kubelet",
    "metrics_bind_address": "listen.metrics",
    "health_bind_address": "listen.health",
}


_SHA256 = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)
_GZIP = b"\x1f\x8b"
# The only artifact that is a program and not an archive, and its field name.
_PROGRAM = "node_exporter"
_FIELDS = {_PROGRAM: "nodeExporter"}


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The base of all mappings in the file: unknown names are refused."""


class File(_Part, frozen=True):
    """A file that is sent to the Mac; its SHA-256, if given, is checked first."""

    file: str
    version: str = ""
    sha256: str = ""


class Artifacts(_Part, frozen=True):
    """The files that are sent to the Mac."""

    tart: File | None = None
    interpreter: File | None = None
    agent: File | None = None
    tailscale: File | None = None
    node_exporter: File | None = None


class Allow(_Part, frozen=True):
    """A private network that VMs may reach, at all ports or at some."""

    cidr: str
    # A list without entries must not open all ports; YAML reads it as null.
    ports: tuple[int | str, ...] | msgspec.UnsetType = msgspec.UNSET
    protocol: str = ""


class EgressTable(_Part, frozen=True):
    """The networks that VMs may reach in addition to the internet."""

    cache_network: str = ""
    cluster_dns: str = ""
    private_network: str = ""
    allow: tuple[Allow, ...] = ()


class TailnetTable(_Part, frozen=True):
    """How the Mac joins the tailnet; the key is in a separate file."""

    auth_key_file: str
    tags: tuple[str, ...] = ()
    accept_routes: bool = False


class Listen(_Part, frozen=True):
    """The addresses that the agent listens on; empty: the agent's own choice."""

    kubelet: str = ""
    metrics: str = ""
    health: str = ""


class ActionsRunnerTable(_Part, frozen=True):
    """The GitHub Actions runner of a builder; the registration token is in a separate file, read when it is needed."""

    org: str
    archive: File
    labels: tuple[str, ...] = tuple(machines.DEFAULT_RUNNER_LABELS.split(","))
    group: str = ""
    token_file: str = ""


class HostConfig(_Part, frozen=True):
    """The whole file."""

    node: str
    labels: dict[str, str] = {}
    register_taints: tuple[str, ...] = ()
    provider_id: str = ""
    cpu: int = 8
    memory_mb: int = 16384
    max_pods: int = 2
    builder: bool | None = None
    user: str = machines.DEFAULT_SSH_USER
    public_keys: tuple[str, ...] = ()
    kubeconfig_file: str = ""
    client_authority_file: str = ""
    registry_credentials_file: str = ""
    vm_boot_timeout_seconds: int | None = None
    dhcp_lease_seconds: int | None = None
    node_ip: str = ""
    listen: Listen = Listen()
    egress: EgressTable = EgressTable()
    artifacts: Artifacts = Artifacts()
    tailnet: TailnetTable | None = None
    gh_actions_runner: ActionsRunnerTable | None = None


@contextmanager
def config_errors(path: Path) -> Iterator[None]:
    """Raise errors of the specification with the path and the field names of this file."""
    try:
        yield
    except InvalidSpec as error:
        if not error.causes:
            raise
        causes = tuple(_named(cause) for cause in error.causes)
        messages = "; ".join(cause.message for cause in causes)
        raise InvalidSpec(f"{path}: {messages}; see {_REFERENCE}", causes=causes) from error
    except BadConfiguration as error:
        if str(path) in str(error):
            raise
        raise BadConfiguration(f"{path}: {error}") from error


def _named(cause: Cause) -> Cause:
    head, bracket, rest = cause.field.partition("[")
    name = _NAMES.get(head, head)
    message = name + cause.message.removeprefix(head)
    return Cause(f"{name}{bracket}{rest}", cause.reason, message)


def read(path: Path) -> HostConfig:
    """Return the configuration; errors name the invalid field."""
    value = config_files.read_yaml(path, field="--config")
    try:
        return msgspec.convert(value, HostConfig)
    except msgspec.ValidationError as error:
        raise BadConfiguration(f"{path}: {error}; see {_REFERENCE}") from error


async def spec(config: HostConfig, folder: Path, store: ArtifactStore, **values: Any) -> MacSpec:
    """Return the specification of the Mac; `values` are fields that are not in the file, such as the password."""
    tailnet = await _tailnet(config, folder, store)
    files = config.artifacts
    _require_pair(files, folder)
    return MacSpec(
        job=_job(config, on_tailnet=tailnet is not None),
        public_keys=config.public_keys,
        client_authority=_authority(config, folder),
        registry_credentials=_registry_credentials(config, folder),
        egress=_egress(config.egress),
        dhcp_lease_seconds=config.dhcp_lease_seconds,
        tart=await _artifact("tart", files.tart, folder, store),
        interpreter=await _archive(Kind.INTERPRETER, files.interpreter, folder, store),
        agent=await _archive(Kind.CODE, files.agent, folder, store),
        node_exporter=await _artifact(_PROGRAM, files.node_exporter, folder, store),
        tailnet=tailnet,
        builder=await _builder(config.gh_actions_runner, folder, store),
        **values,
    )


def _job(config: HostConfig, *, on_tailnet: bool) -> AgentJob:
    return AgentJob(
        node_name=config.node,
        host_cpu=config.cpu,
        host_memory_mb=config.memory_mb,
        max_pods=config.max_pods,
        user=config.user,
        node_labels=config.labels,
        register_taints=config.register_taints,
        on_tailnet=on_tailnet,
        provider_id=config.provider_id,
        vm_boot_timeout_seconds=config.vm_boot_timeout_seconds,
        is_builder=config.builder,
        node_ip=config.node_ip,
        kubelet_bind_address=config.listen.kubelet,
        metrics_bind_address=config.listen.metrics,
        health_bind_address=config.listen.health,
    )


def _egress(table: EgressTable) -> Egress:
    allow = tuple(
        AllowedNetwork(
            cidr=each.cidr,
            ports=None if each.ports is msgspec.UNSET else each.ports,
            protocol=each.protocol,
        )
        for each in table.allow
    )
    return Egress(**{**msgspec.structs.asdict(table), "allow": allow})


def _authority(config: HostConfig, folder: Path) -> bytes:
    if not config.client_authority_file:
        return b""
    field = "clientAuthorityFile"
    content = config_files.read(folder / config.client_authority_file, field=field)
    if b"-----BEGIN CERTIFICATE-----" not in content or b"PRIVATE KEY" in content:
        raise BadConfiguration(
            f"{field} {config.client_authority_file} must contain certificates in PEM format, and no private key"
        )
    return content


def _registry_credentials(config: HostConfig, folder: Path) -> Secret | None:
    if not config.registry_credentials_file:
        return None
    field, path = "registryCredentialsFile", folder / config.registry_credentials_file
    content = config_files.secret(path, field=field, holds="registry credentials")
    try:
        RegistryCredentials(content, config.user)
    except BadConfiguration as error:
        # Without the cause, in whose frames the secret is.
        raise BadConfiguration(f"{field} {path}: {error}") from None
    return content


async def _builder(
    table: ActionsRunnerTable | None, folder: Path, store: ArtifactStore
) -> Builder | None:
    if table is None:
        return None
    field, file = "ghActionsRunner.archive", table.archive
    if not file.sha256:
        raise BadConfiguration(
            f"{field}.sha256 is missing; GitHub publishes it with each release of the runner"
        )

    async def token() -> Secret:
        # Read when the runner is registered: the token is valid for an hour, and a registered runner needs none.
        path = folder / table.token_file
        return config_files.secret(path, field="ghActionsRunner.tokenFile")

    return Builder(
        organisation=table.org,
        labels=table.labels,
        group=table.group,
        archive=await _load_artifact(field, "actions-runner", file, folder, store),
        token=token if table.token_file else None,
    )


def _require_pair(files: Artifacts, folder: Path) -> None:
    """Refuse two archives that were not built for each other, before anything is sent."""
    if files.agent and files.interpreter:
        python, code = folder / files.interpreter.file, folder / files.agent.file
        with config_files.file_errors("artifacts.interpreter", python):
            interpreter = agent_archive.read(python, Kind.INTERPRETER)
        with config_files.file_errors("artifacts.agent", code):
            agent_archive.read(code, Kind.CODE).require_interpreter(interpreter)


async def _tailnet(config: HostConfig, folder: Path, store: ArtifactStore) -> Tailnet | None:
    if config.tailnet is None:
        if config.artifacts.tailscale:
            raise BadConfiguration(
                "artifacts.tailscale is given without tailnet; add tailnet, or remove it"
            )
        return None
    binaries = await _artifact("tailscale", config.artifacts.tailscale, folder, store)
    if binaries is None:
        raise BadConfiguration("tailnet needs artifacts.tailscale, the archive of its programs")
    table = config.tailnet
    return Tailnet(
        binaries=binaries,
        auth_key=config_files.secret(folder / table.auth_key_file, field="tailnet.authKeyFile"),
        tags=table.tags,
        accept_routes=table.accept_routes,
    )


async def _artifact(
    name: str, file: File | None, folder: Path, store: ArtifactStore
) -> Artifact | None:
    if file is None:
        return None
    return await _load_artifact(f"artifacts.{_FIELDS.get(name, name)}", name, file, folder, store)


async def _load_artifact(
    field: str, name: str, file: File, folder: Path, store: ArtifactStore
) -> Artifact:
    path = folder / file.file
    grammar.require("the file", grammar.VERSION.check(f"{field}.version", file.version))
    with config_files.file_errors(field, path):
        _require_content(field, path, is_archive=name != _PROGRAM)
        return _check_digest(await store.load(path, name=name, version=file.version), file)


async def _archive(
    kind: Kind, file: File | None, folder: Path, store: ArtifactStore
) -> Artifact | None:
    if file is None:
        return None
    field, path = f"artifacts.{'agent' if kind is Kind.CODE else 'interpreter'}", folder / file.file
    with config_files.file_errors(field, path):
        manifest = agent_archive.read(path, kind)
        return await _load_archive(manifest, file, path, store)


async def _load_archive(
    manifest: Manifest, file: File, path: Path, store: ArtifactStore
) -> Artifact:
    if file.version and file.version != manifest.version:
        raise BadConfiguration(f"{file.file} holds version {manifest.version}, not {file.version}")
    return _check_digest(await store.load(path, name=manifest.name, version=manifest.version), file)


def _require_content(field: str, path: Path, *, is_archive: bool) -> None:
    """Refuse a file that cannot be unpacked or run, before it is sent."""
    with path.open("rb") as file:
        start = file.read(len(_GZIP))
    if not start:
        raise BadConfiguration(f"{field}: {path} is empty")
    if is_archive and start != _GZIP:
        raise BadConfiguration(f"{field}: {path} is not a .tar.gz archive")


def _check_digest(artifact: Artifact, file: File) -> Artifact:
    if file.sha256 and not _SHA256.fullmatch(file.sha256):
        raise BadConfiguration(f"{file.file}: sha256 must be 64 hexadecimal digits")
    if file.sha256 and file.sha256.lower() != artifact.sha256:
        raise BadConfiguration(
            f"{artifact.path} has the SHA-256 {artifact.sha256}, not {file.sha256}; fetch it again"
        )
    return artifact
