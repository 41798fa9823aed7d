"""Drift detection: a hash per part of a Mac, and the stamps of the parts that were applied.

A part is stamped when it was applied, never together with others, so a Mac never counts as converged to something it did not get.
Hashes cover files and artifacts, not secrets. The stamps are kept in a file on the Mac.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bramley.api.names import host
from bramley.base.errors import BadConfiguration
from bramley.host.commands import Command, Folder, ReadFile, Write
from bramley.host.facts import Facts

MAX_STAMPS_BYTES = 64 * 1024
STAMPS_FILE = ReadFile(host.STAMPS, max_bytes=MAX_STAMPS_BYTES + 1)
CREATE_FOLDER = Folder(path=host.STAMPS_FOLDER, purpose="create the stamps folder")
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)

Stamps = Mapping[str, str]


class Part(StrEnum):
    """The parts that are repaired independently, in the order in which they are applied.

    Tart must not be one of them: macOS ties the Local Network permission to its signature, so Tart is replaced only on request.
    """

    FIREWALL = "firewall"
    DHCP_LEASES = "dhcp-leases"
    TAILSCALE = "tailscale"
    RESOLVER = "tailnet-resolver"
    LOCAL_NETWORK = "local-network-allowlist"
    NODE_EXPORTER = "node-exporter"
    LOG_ROTATION = "log-rotation"
    REGISTRY_CREDENTIALS = "registry-credentials"
    INTERPRETER = "interpreter"
    AGENT = "agent"
    AGENT_JOB = "launchd-plist"
    BUILD_ENVIRONMENT = "build-environment"
    ACTIONS_RUNNER = "actions-runner"


@dataclass(frozen=True, slots=True)
class DesiredPart:
    """The desired state of one part: the SHA-256 of each of its files and artifacts, by name."""

    part: Part
    digests: Mapping[str, str]

    @property
    def stamp(self) -> str:
        """Return the hash of the whole part."""
        hasher = hashlib.sha256(f"{self.part}\0".encode())
        for name, digest in sorted(self.digests.items()):
            # A value that is not a hash might stay the same when the content changes.
            if "\0" in name or not _DIGEST.fullmatch(digest):
                raise BadConfiguration(f"part {self.part}: {name!r} has no SHA-256")
            hasher.update(f"{name}\0{digest}\0".encode())
        return hasher.hexdigest()


def digest(contents: bytes) -> str:
    """Return the SHA-256 of a rendered file; artifacts have their own."""
    return hashlib.sha256(contents).hexdigest()


def read_stamps(facts: Facts) -> Stamps:
    """Return the stamps on the Mac; empty if there are none or they cannot be read."""
    return load(facts.file(STAMPS_FILE) or b"")


def write_stamps(stamps: Stamps) -> Iterator[Command]:
    """Yield the commands that write the stamps to the Mac."""
    yield CREATE_FOLDER
    yield Write(path=host.STAMPS, content=dump(stamps), purpose="record the applied parts")


def retired_parts(desired: Collection[DesiredPart], stamps: Stamps) -> list[Part]:
    """Return the parts that were applied and are no longer desired, in the order of removal."""
    desired_parts = {each.part for each in desired}
    return [part for part in reversed(Part) if part in stamps and part not in desired_parts]


def with_part(stamps: Stamps, part: DesiredPart) -> Stamps:
    """Return the stamps after this part, and no other, was applied."""
    return {**stamps, part.part: part.stamp}


def without_part(stamps: Stamps, part: Part) -> Stamps:
    """Return the stamps after a part was removed."""
    return {name: stamp for name, stamp in stamps.items() if name != part}


def dump(stamps: Stamps) -> bytes:
    """Return the content of the stamps file."""
    return json.dumps(dict(stamps), indent=1, sort_keys=True).encode() + b"\n"


def load(contents: bytes) -> Stamps:
    """Return the stamps in a stamps file; empty if it is not valid, so that every part is applied again."""
    if len(contents) > MAX_STAMPS_BYTES:
        return {}
    try:
        stamps = json.loads(contents)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(stamps, dict):
        return {}
    return {
        name: stamp
        for name, stamp in stamps.items()
        if isinstance(stamp, str) and _DIGEST.fullmatch(stamp)
    }
