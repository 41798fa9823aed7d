"""The files that `bramley machines` streams to Macs: checked, and hashed once, at the start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bramley.app import config_files
from bramley.base.errors import BadConfiguration
from bramley.host import agent_archive, grammar
from bramley.host.agent_archive import Kind, Manifest
from bramley.host.artifacts import Artifact, ArtifactStore, BandwidthLimit
from bramley.machines.host_configuration import Artifacts

_AGENT = "--tartkubelet-archive-path"
_INTERPRETER = "--tartkubelet-interpreter-path"
_RUNNERS = "--actions-runner-archives"
_PREFIX, _SUFFIX = "actions-runner-osx-arm64-", ".tar.gz"
_GZIP = b"\x1f\x8b"
# As sha256sum prints it; the name behind the digest is optional.
_DIGEST = re.compile(r"([0-9A-Fa-f]{64})(?:\s+\*?\S+)?\s*", re.ASCII)
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Program:
    """A file and the version of the program in it."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSettings:
    """Where the files are, and their bandwidth limit."""

    agent: Path
    interpreter: Path
    tart: Program
    tailscale: Program | None = None
    node_exporter: Program | None = None
    # The folder with the archives of GitHub's runner.
    actions_runners: Path | None = None
    # Of all hosts together; 0: no limit.
    megabytes_per_second: int = 0


class _Source(NamedTuple):
    """The flags of a file and of its version, and whether it is an archive."""

    name: str
    flag: str
    version_flag: str
    is_archive: bool = True


_TART = _Source("tart", "--tart-tarball-path", "--tart-version")
_TAILSCALE = _Source("tailscale", "--tailscale-binaries-path", "--tailscale-version")
_EXPORTER = _Source(
    "node_exporter", "--node-exporter-binary-path", "--node-exporter-version", is_archive=False
)
_RUNNER = _Source("actions-runner", _RUNNERS, _RUNNERS)


async def load(settings: ArtifactSettings) -> Artifacts:
    """Return all artifacts; BadConfiguration names the flag of a file that is missing or invalid."""
    rate = settings.megabytes_per_second * _MEGABYTE
    store = ArtifactStore(limit=BandwidthLimit(rate) if rate else None)
    interpreter = _manifest(_INTERPRETER, settings.interpreter, Kind.INTERPRETER)
    code = _manifest(_AGENT, settings.agent, Kind.CODE)
    code.require_interpreter(interpreter)
    tailscale, exporter = settings.tailscale, settings.node_exporter
    return Artifacts(
        store=store,
        tart=await _program(store, _TART, settings.tart),
        interpreter=await _archive(store, interpreter, settings.interpreter),
        agent=await _archive(store, code, settings.agent),
        tailscale=await _program(store, _TAILSCALE, tailscale) if tailscale else None,
        node_exporter=await _program(store, _EXPORTER, exporter) if exporter else None,
        actions_runners=await _runners(store, settings.actions_runners),
    )


def _manifest(flag: str, path: Path, kind: Kind) -> Manifest:
    with config_files.file_errors(flag, path):
        try:
            return agent_archive.read(path, kind)
        except BadConfiguration as error:
            raise BadConfiguration(f"{flag}: {error}") from error


async def _archive(store: ArtifactStore, manifest: Manifest, path: Path) -> Artifact:
    return await store.load(path, name=manifest.name, version=manifest.version)


async def _program(store: ArtifactStore, source: _Source, program: Program) -> Artifact:
    path, version = program.path, program.version
    grammar.require(source.name, grammar.VERSION.check(source.version_flag, version))
    with config_files.file_errors(source.flag, path), path.open("rb") as file:
        start = file.read(len(_GZIP))
    if not start or (source.is_archive and start != _GZIP):
        problem = "is not a .tar.gz archive" if start else "is empty"
        raise BadConfiguration(f"{source.flag}: {path} {problem}")
    return await store.load(path, name=source.name, version=version)


async def _runners(store: ArtifactStore, folder: Path | None) -> dict[str, Artifact]:
    if folder is None:
        return {}
    found = {}
    for path in _runner_archives(folder):
        version = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        artifact = await _program(store, _RUNNER, Program(path, version))
        _require_digest(artifact)
        found[version] = artifact
    return found


def _runner_archives(folder: Path) -> Iterator[Path]:
    """Yield the archives in a folder; one without any is a mistake."""
    with config_files.file_errors(_RUNNERS, folder):
        found = sorted(
            path
            for path in folder.iterdir()
            if path.name.startswith(_PREFIX) and path.name.endswith(_SUFFIX)
        )
    if not found:
        raise BadConfiguration(f"{_RUNNERS}: {folder} has no {_PREFIX}<version>{_SUFFIX}")
    yield from found


def _require_digest(artifact: Artifact) -> None:
    """Compare an archive with the digest beside it, which GitHub publishes with each release."""
    beside = artifact.path.with_name(artifact.path.name + ".sha256")
    text = config_files.read(beside, field=_RUNNERS).decode("ascii", "replace")
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise BadConfiguration(f"{_RUNNERS}: {beside} must contain one SHA-256 in hexadecimal")
    if match[1].lower() != artifact.sha256:
        raise BadConfiguration(
            f"{_RUNNERS}: {artifact.path} has the SHA-256 {artifact.sha256}, not {match[1].lower()}; fetch it again"
        )
