"""The manifest of an archive of the agent: which of the two parts it contains, its version and its platform.

The manifest is the archive's first member, so reading a few kilobytes suffices. An archive is unpacked unchanged into the folder
`Manifest.folder`, first under a temporary name beside it; nothing in it depends on its path.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from enum import StrEnum
from pathlib import Path

import msgspec

from bramley.api.names import host
from bramley.base.errors import BadConfiguration

MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 64 * 1024
# A release number, and behind the plus the beginning of the contents' hash.
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,3}(?:(?:a|b|rc)[0-9]+)?\+[0-9a-f]{12}", re.ASCII)


class Kind(StrEnum):
    """The two parts that are installed, and drift, independently."""

    INTERPRETER = "interpreter"
    CODE = "code"


class Platform(StrEnum):
    """The platform of the native files in an archive."""

    MACOS_ARM64 = "macos-arm64"
    LINUX_X86_64 = "linux-x86_64"
    LINUX_ARM64 = "linux-arm64"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one archive; equal content has equal versions, wherever it was built."""

    kind: Kind
    name: str
    version: str
    platform: Platform
    # The series of Python that native files and bytecode are for, like 3.13.
    python: str
    # The version of the interpreter that the code starts with; empty in an interpreter's own manifest.
    interpreter: str = ""
    # SHA-256 over the names, modes and contents of all files but bytecode, which follows from them.
    content: str
    # What it was made from, each with its SHA-256.
    inputs: dict[str, str] = {}

    @property
    def folder(self) -> str:
        """Return the folder of this archive on a host."""
        if self.kind is Kind.INTERPRETER:
            return host.agent_interpreter(self.version)
        return host.agent_release(self.version)

    def require_interpreter(self, other: Manifest) -> None:
        """Refuse an interpreter that this code was not built for."""
        if (self.interpreter, self.platform) != (other.version, other.platform):
            raise BadConfiguration(
                f"the agent {self.version} for {self.platform} needs the interpreter {self.interpreter}, and got"
                f" {other.version} for {other.platform}; build both again: python -m tools.agent_bundle --help"
            )


def is_version(name: str) -> bool:
    """Return whether a folder name is a version of either part."""
    return _VERSION.fullmatch(name) is not None


def read(path: Path, kind: Kind) -> Manifest:
    """Return the manifest of a local archive; refuses a file that is not an archive of the agent."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            if first is None or first.name != MANIFEST or first.size > _MAX_MANIFEST_BYTES:
                raise BadConfiguration(f"{path} does not begin with {MANIFEST}: {_NOT_OURS}")
            file = archive.extractfile(first)
            manifest = msgspec.json.decode(file.read() if file else b"", type=Manifest)
    except (tarfile.TarError, msgspec.DecodeError, EOFError, zlib.error) as error:
        raise BadConfiguration(f"{path} cannot be read: {error}: {_NOT_OURS}") from error
    _require(path, manifest, kind)
    return manifest


_NOT_OURS = "it is not an archive of the agent; build one with python -m tools.agent_bundle"


def _require(path: Path, manifest: Manifest, kind: Kind) -> None:
    if manifest.kind is not kind:
        raise BadConfiguration(f"{path} contains the agent's {manifest.kind}, not its {kind}")
    versions = [manifest.version] + ([manifest.interpreter] if manifest.kind is Kind.CODE else [])
    for version in versions:
        # It becomes the name of a folder on the host.
        if not is_version(version):
            raise BadConfiguration(f"{path} has the invalid version {version!r}: {_NOT_OURS}")
