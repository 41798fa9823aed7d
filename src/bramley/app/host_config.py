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
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import agent_archive, grammar
from bramley.host.agent_archive import Kind
from bramley.host.artifacts import Artifact, Depot
from bramley.host.plist import AgentJob
from bramley.host.spec import Egress, MacSpec, Tailnet

LONGEST = 256 * 1024
LONGEST_SECRET = 64 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


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
    egress: EgressTable = EgressTable()
    artifacts: Artifacts = Artifacts()
    tailnet: TailnetTable | None = None


def read(path: Path) -> HostConfig:
    """Return what the file says, or refuse it by the field that is wrong."""
    try:
        content = _bounded(path, LONGEST)
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
        node_exporter=await _artifact("node_exporter", files.node_exporter, folder, depot),
        tailnet=tailnet,
        **given,
    )


def secret(path: Path) -> Secret:
    """Return what a file of one secret holds, without the line's end."""
    try:
        text = _bounded(path, LONGEST_SECRET).decode()
    except UnicodeDecodeError:
        # The error holds the secret, so it is not passed on.
        raise BadConfiguration(f"{path} is no text; it should hold one secret") from None
    if not text.strip():
        raise BadConfiguration(f"{path} is empty; it should hold one secret")
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
    )


def _authority(config: HostConfig, folder: Path) -> bytes:
    if not config.client_authority_file:
        return b""
    content = _bounded(folder / config.client_authority_file, LONGEST)
    if b"-----BEGIN CERTIFICATE-----" not in content or b"PRIVATE KEY" in content:
        raise BadConfiguration(
            f"clientAuthorityFile {config.client_authority_file} must hold certificates in PEM, and no key"
        )
    return content


def _require_pair(files: Artifacts, folder: Path) -> None:
    """Refuse two archives that were not built for each other, before the Mac does."""
    if files.agent and files.interpreter:
        interpreter = agent_archive.read(folder / files.interpreter.file, Kind.INTERPRETER)
        agent_archive.read(folder / files.agent.file, Kind.CODE).require_interpreter(interpreter)


async def _tailnet(config: HostConfig, folder: Path, depot: Depot) -> Tailnet | None:
    if config.tailnet is None:
        return None
    binaries = await _artifact("tailscale", config.artifacts.tailscale, folder, depot)
    if binaries is None:
        raise BadConfiguration("tailnet needs artifacts.tailscale, the archive of its programs")
    table = config.tailnet
    return Tailnet(
        binaries=binaries,
        auth_key=secret(folder / table.auth_key_file),
        tags=table.tags,
        accept_routes=table.accept_routes,
    )


async def _artifact(name: str, file: File | None, folder: Path, depot: Depot) -> Artifact | None:
    if file is None:
        return None
    grammar.require(f"artifacts.{name}", grammar.VERSION.check("version", file.version))
    return _checked(await depot.take(folder / file.file, name=name, version=file.version), file)


async def _archive(kind: Kind, file: File | None, folder: Path, depot: Depot) -> Artifact | None:
    if file is None:
        return None
    found = agent_archive.read(folder / file.file, kind)
    if file.version and file.version != found.version:
        raise BadConfiguration(f"{file.file} holds version {found.version}, not {file.version}")
    return _checked(
        await depot.take(folder / file.file, name=found.name, version=found.version), file
    )


def _checked(artifact: Artifact, file: File) -> Artifact:
    if file.sha256 and not _SHA256.fullmatch(file.sha256):
        raise BadConfiguration(f"{file.file}: sha256 must be 64 hexadecimal digits")
    if file.sha256 and file.sha256 != artifact.sha256:
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


def _bounded(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise BadConfiguration(f"{path} is larger than {most // 1024} KiB")
    return content


def _one_line(error: Exception) -> str:
    # The parser calls what it reads by its type; the file is named already.
    return " ".join(str(error).replace('in "<byte string>", ', "in ").split())[:300]
