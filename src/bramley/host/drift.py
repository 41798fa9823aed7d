"""Which parts of a Mac differ from what is wanted: a hash per part, and the stamps of those that were applied.

A part is stamped when it was applied and never with the others, so a Mac is not taken for converged to what it never got.
Hashes are of files and artifacts, not of secrets. The stamps live in a file on the Mac; reading and writing it is done elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bramley.base.errors import BadConfiguration

LONGEST_FILE = 64 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Part(StrEnum):
    """What is repaired on its own, in the order in which it is applied.

    Tart is not among them and must not be: another signature loses the grant to the local network, so it is replaced only
    when somebody asks for it.
    """

    FIREWALL = "firewall"
    TAILSCALE = "tailscale"
    RESOLVER = "tailnet-resolver"
    LOCAL_NETWORK = "local-network-allowlist"
    NODE_EXPORTER = "node-exporter"
    LOG_ROTATION = "log-rotation"
    INTERPRETER = "interpreter"
    AGENT = "agent"
    AGENT_JOB = "launchd-plist"


Stamps = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One part as it should be: the SHA-256 of each file and artifact that makes it up, by name."""

    part: Part
    digests: Mapping[str, str]

    @property
    def stamp(self) -> str:
        """Return the hash of the whole part."""
        whole = hashlib.sha256(f"{self.part}\0".encode())
        for name, digest in sorted(self.digests.items()):
            # Anything else has not been hashed, and would look the same when it changes.
            if "\0" in name or not _DIGEST.fullmatch(digest):
                raise BadConfiguration(f"part {self.part}: {name!r} comes without its SHA-256")
            whole.update(f"{name}\0{digest}\0".encode())
        return whole.hexdigest()


def digest(contents: bytes) -> str:
    """Return the SHA-256 of a rendered file; artifacts bring their own."""
    return hashlib.sha256(contents).hexdigest()


def retired(wanted: Collection[Wanted], stamps: Stamps) -> list[Part]:
    """Return the parts that were applied once and are wanted no more, in the order to take them away."""
    kept = {one.part for one in wanted}
    return [part for part in reversed(Part) if part in stamps and part not in kept]


def applied(stamps: Stamps, part: Wanted) -> Stamps:
    """Return the stamps after this part, and only this part, was applied."""
    return {**stamps, part.part: part.stamp}


def removed(stamps: Stamps, part: Part) -> Stamps:
    """Return the stamps after a part was taken away."""
    return {name: stamp for name, stamp in stamps.items() if name != part}


def dump(stamps: Stamps) -> bytes:
    """Return the stamps as the file on the Mac holds them."""
    return json.dumps(dict(stamps), indent=1, sort_keys=True).encode() + b"\n"


def load(contents: bytes) -> Stamps:
    """Return the stamps of such a file; one that cannot be used says nothing, so that every part is applied again."""
    if len(contents) > LONGEST_FILE:
        return {}
    try:
        found = json.loads(contents)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        name: stamp
        for name, stamp in found.items()
        if isinstance(stamp, str) and _DIGEST.fullmatch(stamp)
    }
