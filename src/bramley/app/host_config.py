"""The configuration file of one Mac, for `bramley host`; errors name the fields of the file.

Paths in it are relative to the file. It contains no secrets but names files that do, so that it may be kept with other
configuration. The specification of a Mac has other field names, since the file is not its only source.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bramley.api.names import machines
from bramley.base.errors import BadConfiguration, Cause, InvalidSpec
from bramley.base.secret import Secret
from bramley.host import agent_archive, grammar
from bramley.host.agent_archive import Kind, Manifest
from bramley.host.agent_daemon import AgentJob
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.spec import Egress, MacSpec, Tailnet

_REFERENCE = "docs/reference/host-config.md"
_NAMES = {
    "node_name": "node",
    "host_cpu": "cpu",
    "host_memory_mb": "memoryMb",
    "max_pods": "maxPods",
    "node_labels": "labels",
    "provider_id": "providerId",
    "public_keys": "publicKeys",
    "cache_network": "egress.cacheNetwork",
    "private_network": "egress.privateNetwork",
    "cluster_dns": "egress.clusterDns",
    "node_ip": "nodeIp",
    "kubelet_bind_address": "listen.kubelet",
    "metrics_bind_address": "listen.metrics",
    "health_bind_address": "listen.health",
}


MAX_BYTES = 256 * 1024
MAX_SECRET_BYTES = 64 * 1024
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)
_GZIP = b"\x1f\x8b"
# The only artifact that is a program and not an archive, and its field name.
_PROGRAM = "node_exporter"
_FIELDS = {_PROGRAM: "nodeExporter"}


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The base of all mappings in the file: unknown names are refused."""


class _DuplicateKey(Exception):
    """A mapping has a duplicate key."""


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


class EgressTable(_Part, frozen=True):
    """The networks that VMs may reach in addition to the internet."""

    cache_network: str = ""
    cluster_dns: str = ""
    private_network: str = ""


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


class HostConfig(_Part, frozen=True):
    """The whole file."""

    node: str
    labels: dict[str, str] = {}
    provider_id: str = ""
    cpu: int = 8
    memory_mb: int = 16384
    max_pods: int = 2
    builder: bool | None = None
    user: str = machines.DEFAULT_SSH_USER
    public_keys: tuple[str, ...] = ()
    kubeconfig_file: str = ""
    client_authority_file: str = ""
    node_ip: str = ""
    listen: Listen = Listen()
    egress: EgressTable = EgressTable()
    artifacts: Artifacts = Artifacts()
    tailnet: TailnetTable | None = None


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


@contextmanager
def file_errors(field: str, path: Path) -> Iterator[None]:
    """Raise the error of an unreadable file with the field or flag that names it."""
    try:
        yield
    except OSError as error:
        # The path may be shown: only the content of the file may be secret.
        raise BadConfiguration(f"{field}: {error.strerror or error} ({path})") from None


def _named(cause: Cause) -> Cause:
    head, bracket, rest = cause.field.partition("[")
    name = _NAMES.get(head, head)
    message = name + cause.message.removeprefix(head)
    return Cause(f"{name}{bracket}{rest}", cause.reason, message)


def read(path: Path) -> HostConfig:
    """Return the configuration; errors name the invalid field."""
    try:
        content = _read_bounded(path, MAX_BYTES, field="--config")
        return msgspec.convert(_load_yaml(content), HostConfig)
    except msgspec.ValidationError as error:
        raise BadConfiguration(f"{path}: {error}; see docs/reference/host-config.md") from error
    except _DuplicateKey as error:
        raise BadConfiguration(f"{path}: {error}; only one of them would be used") from None
    # The parser does not wrap the errors of its constructors for dates, numbers and tags.
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
        raise BadConfiguration(f"{path} is not valid YAML: {_one_line(error)}") from error


async def spec(config: HostConfig, folder: Path, store: ArtifactStore, **values: Any) -> MacSpec:
    """Return the specification of the Mac; `values` are fields that are not in the file, such as the password."""
    tailnet = await _tailnet(config, folder, store)
    files = config.artifacts
    _require_pair(files, folder)
    return MacSpec(
        job=_job(config, on_tailnet=tailnet is not None),
        public_keys=config.public_keys,
        client_authority=_authority(config, folder),
        egress=Egress(**msgspec.structs.asdict(config.egress)),
        tart=await _artifact("tart", files.tart, folder, store),
        interpreter=await _archive(Kind.INTERPRETER, files.interpreter, folder, store),
        agent=await _archive(Kind.CODE, files.agent, folder, store),
        node_exporter=await _artifact(_PROGRAM, files.node_exporter, folder, store),
        tailnet=tailnet,
        **values,
    )


def secret(path: Path, *, field: str, holds: str = "one secret") -> Secret:
    """Return the secret in a file, without the final newline; `field` is the field or flag that names the file."""
    try:
        text = _read_bounded(path, MAX_SECRET_BYTES, field=field).decode()
    except UnicodeDecodeError:
        # Without the cause, which contains the secret.
        raise BadConfiguration(
            f"{field}: {path} is not valid UTF-8; it must contain {holds}"
        ) from None
    if not text.strip():
        raise BadConfiguration(f"{field}: {path} is empty; it must contain {holds}")
    return Secret(text.rstrip("\r\n"))


def _job(config: HostConfig, *, on_tailnet: bool) -> AgentJob:
    return AgentJob(
        node_name=config.node,
        host_cpu=config.cpu,
        host_memory_mb=config.memory_mb,
        max_pods=config.max_pods,
        user=config.user,
        node_labels=config.labels,
        on_tailnet=on_tailnet,
        provider_id=config.provider_id,
        is_builder=config.builder,
        node_ip=config.node_ip,
        kubelet_bind_address=config.listen.kubelet,
        metrics_bind_address=config.listen.metrics,
        health_bind_address=config.listen.health,
    )


def _authority(config: HostConfig, folder: Path) -> bytes:
    if not config.client_authority_file:
        return b""
    field = "clientAuthorityFile"
    content = _read_bounded(folder / config.client_authority_file, MAX_BYTES, field=field)
    if b"-----BEGIN CERTIFICATE-----" not in content or b"PRIVATE KEY" in content:
        raise BadConfiguration(
            f"{field} {config.client_authority_file} must contain certificates in PEM format, and no private key"
        )
    return content


def _require_pair(files: Artifacts, folder: Path) -> None:
    """Refuse two archives that were not built for each other, before anything is sent."""
    if files.agent and files.interpreter:
        python, code = folder / files.interpreter.file, folder / files.agent.file
        with file_errors("artifacts.interpreter", python):
            interpreter = agent_archive.read(python, Kind.INTERPRETER)
        with file_errors("artifacts.agent", code):
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
        auth_key=secret(folder / table.auth_key_file, field="tailnet.authKeyFile"),
        tags=table.tags,
        accept_routes=table.accept_routes,
    )


async def _artifact(
    name: str, file: File | None, folder: Path, store: ArtifactStore
) -> Artifact | None:
    if file is None:
        return None
    field, path = f"artifacts.{_FIELDS.get(name, name)}", folder / file.file
    grammar.require("the file", grammar.VERSION.check(f"{field}.version", file.version))
    with file_errors(field, path):
        _require_content(field, path, is_archive=name != _PROGRAM)
        return _check_digest(await store.load(path, name=name, version=file.version), file)


async def _archive(
    kind: Kind, file: File | None, folder: Path, store: ArtifactStore
) -> Artifact | None:
    if file is None:
        return None
    field, path = f"artifacts.{'agent' if kind is Kind.CODE else 'interpreter'}", folder / file.file
    with file_errors(field, path):
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


def _load_yaml(content: bytes) -> Any:
    """Return the value of a YAML document; duplicate keys are refused, because only one of them would be used."""
    loader = yaml.SafeLoader(content)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_duplicates(node, visited=set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_duplicates(node: yaml.Node, *, visited: set[int]) -> None:
    if id(node) in visited:
        # Reached again through an alias, possibly a recursive one.
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if twice := [name[:80] for name, count in names.items() if count > 1]:
            line = node.start_mark.line + 1
            raise _DuplicateKey(f"duplicate key {', '.join(twice)} in the mapping at line {line}")
    for each in _children(node):
        _refuse_duplicates(each, visited=visited)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _read_bounded(path: Path, max_bytes: int, *, field: str) -> bytes:
    with file_errors(field, path), path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise BadConfiguration(f"{path} is larger than {max_bytes // 1024} KiB")
    return content


def _one_line(error: Exception) -> str:
    # Without the parser's name for its input; the file is named already.
    return " ".join(str(error).replace('in "<byte string>", ', "in ").split())[:300]
