"""The file that says what one Mac is to become, for `bramley host`: read whole, refused whole, by the names of its fields.

Paths in it are relative to the file. Secrets are not in it but in files of their own that it names, so that it may be kept with
other configuration.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bramley.api.names import machines
from bramley.app.host_config_errors import naming
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import agent_archive, grammar
from bramley.host.agent_archive import Kind, Manifest
from bramley.host.artifacts import Artifact, Depot
from bramley.host.plist import AgentJob
from bramley.host.spec import Egress, MacSpec, Tailnet

LONGEST = 256 * 1024
LONGEST_SECRET = 64 * 1024
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)
_GZIP = b"\x1f\x8b"
# The one artifact that is a program and no archive, and what the file calls it.
_PROGRAM = "node_exporter"
_FIELDS = {_PROGRAM: "nodeExporter"}


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The ground of every table in the file: a name that is not known is a mistake."""


class _GivenTwice(Exception):
    """A name that a table has twice."""


class File(_Part, frozen=True):
    """A file that is brought to the Mac; its SHA-256, where given, is checked before anything else is done."""

    file: str
    version: str = ""
    sha256: str = ""


class Artifacts(_Part, frozen=True):
    """What is brought to the Mac."""

    tart: File | None = None
    interpreter: File | None = None
    agent: File | None = None
    tailscale: File | None = None
    node_exporter: File | None = None


class EgressTable(_Part, frozen=True):
    """Where VMs may go besides the internet."""

    cache_network: str = ""
    cluster_dns: str = ""
    private_network: str = ""


class TailnetTable(_Part, frozen=True):
    """How the Mac joins the tailnet; the key is in a file of its own."""

    auth_key_file: str
    tags: tuple[str, ...] = ()
    accept_routes: bool = False


class Listen(_Part, frozen=True):
    """Where the agent listens; empty is what it chooses by itself."""

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


def read(path: Path) -> HostConfig:
    """Return what the file says, or refuse it by the field that is wrong."""
    try:
        content = _bounded(path, LONGEST, field="--config")
        return msgspec.convert(_loaded(content), HostConfig)
    except msgspec.ValidationError as error:
        raise BadConfiguration(f"{path}: {error}; see docs/reference/host-config.md") from error
    except _GivenTwice as error:
        raise BadConfiguration(f"{path}: {error}; only one of them would count") from None
    # The parser's own constructors let through what a date, a number or a tag of another kind makes them raise.
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
        raise BadConfiguration(f"{path} is no YAML: {_one_line(error)}") from error


async def spec(config: HostConfig, folder: Path, depot: Depot, **given: Any) -> MacSpec:
    """Return what the Mac is to become; `given` are the fields that no file holds, such as the password."""
    tailnet = await _tailnet(config, folder, depot)
    files = config.artifacts
    _require_pair(files, folder)
    return MacSpec(
        job=_job(config, on_tailnet=tailnet is not None),
        public_keys=config.public_keys,
        client_authority=_authority(config, folder),
        egress=Egress(**msgspec.structs.asdict(config.egress)),
        tart=await _artifact("tart", files.tart, folder, depot),
        interpreter=await _archive(Kind.INTERPRETER, files.interpreter, folder, depot),
        agent=await _archive(Kind.CODE, files.agent, folder, depot),
        node_exporter=await _artifact(_PROGRAM, files.node_exporter, folder, depot),
        tailnet=tailnet,
        **given,
    )


def secret(path: Path, *, field: str, holds: str = "one secret") -> Secret:
    """Return what a file of one secret holds, without the line's end; `field` is what names the file."""
    try:
        text = _bounded(path, LONGEST_SECRET, field=field).decode()
    except UnicodeDecodeError:
        # The error holds the secret, so it is not passed on.
        raise BadConfiguration(f"{field}: {path} is no text; it should hold {holds}") from None
    if not text.strip():
        raise BadConfiguration(f"{field}: {path} is empty; it should hold {holds}")
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
    content = _bounded(folder / config.client_authority_file, LONGEST, field=field)
    if b"-----BEGIN CERTIFICATE-----" not in content or b"PRIVATE KEY" in content:
        raise BadConfiguration(
            f"{field} {config.client_authority_file} must hold certificates in PEM, and no key"
        )
    return content


def _require_pair(files: Artifacts, folder: Path) -> None:
    """Refuse two archives that were not built for each other, before the Mac does."""
    if files.agent and files.interpreter:
        python, code = folder / files.interpreter.file, folder / files.agent.file
        with naming("artifacts.interpreter", python):
            interpreter = agent_archive.read(python, Kind.INTERPRETER)
        with naming("artifacts.agent", code):
            agent_archive.read(code, Kind.CODE).require_interpreter(interpreter)


async def _tailnet(config: HostConfig, folder: Path, depot: Depot) -> Tailnet | None:
    if config.tailnet is None:
        if config.artifacts.tailscale:
            raise BadConfiguration(
                "artifacts.tailscale is for a tailnet, and there is none; give tailnet, or leave it out"
            )
        return None
    binaries = await _artifact("tailscale", config.artifacts.tailscale, folder, depot)
    if binaries is None:
        raise BadConfiguration("tailnet needs artifacts.tailscale, the archive of its programs")
    table = config.tailnet
    return Tailnet(
        binaries=binaries,
        auth_key=secret(folder / table.auth_key_file, field="tailnet.authKeyFile"),
        tags=table.tags,
        accept_routes=table.accept_routes,
    )


async def _artifact(name: str, file: File | None, folder: Path, depot: Depot) -> Artifact | None:
    if file is None:
        return None
    field, path = f"artifacts.{_FIELDS.get(name, name)}", folder / file.file
    grammar.require("the file", grammar.VERSION.check(f"{field}.version", file.version))
    with naming(field, path):
        _require_content(field, path, is_archive=name != _PROGRAM)
        return _checked(await depot.take(path, name=name, version=file.version), file)


async def _archive(kind: Kind, file: File | None, folder: Path, depot: Depot) -> Artifact | None:
    if file is None:
        return None
    field, path = f"artifacts.{'agent' if kind is Kind.CODE else 'interpreter'}", folder / file.file
    with naming(field, path):
        found = agent_archive.read(path, kind)
        return await _taken(found, file, path, depot)


async def _taken(found: Manifest, file: File, path: Path, depot: Depot) -> Artifact:
    if file.version and file.version != found.version:
        raise BadConfiguration(f"{file.file} holds version {found.version}, not {file.version}")
    return _checked(await depot.take(path, name=found.name, version=found.version), file)


def _require_content(field: str, path: Path, *, is_archive: bool) -> None:
    """Refuse what nobody could unpack or run, before it is brought anywhere."""
    with path.open("rb") as file:
        start = file.read(len(_GZIP))
    if not start:
        raise BadConfiguration(f"{field}: {path} is empty")
    if is_archive and start != _GZIP:
        raise BadConfiguration(f"{field}: {path} is no archive of the kind .tar.gz")


def _checked(artifact: Artifact, file: File) -> Artifact:
    if file.sha256 and not _SHA256.fullmatch(file.sha256):
        raise BadConfiguration(f"{file.file}: sha256 must be 64 hexadecimal digits")
    if file.sha256 and file.sha256.lower() != artifact.sha256:
        raise BadConfiguration(
            f"{artifact.path} has the SHA-256 {artifact.sha256}, not {file.sha256}; fetch it again"
        )
    return artifact


def _loaded(content: bytes) -> Any:
    """Return what a YAML holds; a name that is given twice is refused, since only one of the two would count."""
    loader = yaml.SafeLoader(content)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _require_once(node, seen=set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _require_once(node: yaml.Node, *, seen: set[int]) -> None:
    if id(node) in seen:
        # An alias leads here again, perhaps from within.
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if twice := [name[:80] for name, count in names.items() if count > 1]:
            line = node.start_mark.line + 1
            raise _GivenTwice(f"{', '.join(twice)} given twice in what begins in line {line}")
    for each in _children(node):
        _require_once(each, seen=seen)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _bounded(path: Path, most: int, *, field: str) -> bytes:
    with naming(field, path), path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise BadConfiguration(f"{path} is larger than {most // 1024} KiB")
    return content


def _one_line(error: Exception) -> str:
    # The parser calls what it reads by its type; the file is named already.
    return " ".join(str(error).replace('in "<byte string>", ', "in ").split())[:300]
