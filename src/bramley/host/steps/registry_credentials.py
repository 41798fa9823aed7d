"""The registry credentials of the agent: a file in Docker's format that only its user may read.

The agent reads it for each pull, so a change needs no restart. Of the file only its owner, mode and digest leave the Mac. The stamp
covers the path alone: a password may be short, and its hash could be brute-forced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from bramley.api.docker_config import DockerConfig
from bramley.api.names import host
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import archive_install, drift
from bramley.host.commands import Command, Probe, Stat, Write
from bramley.host.facts import FILE, Facts
from bramley.host.step import Step

MODE = 0o600
_FILE = Stat(host.REGISTRY_CREDENTIALS, digest=True)
_REGISTRY = re.compile(
    r"(?:https?://)?[A-Za-z0-9*.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._/-]*)?", re.ASCII
)
_MAX_KEY_LENGTH = 255
_EXAMPLE = '{"auths": {"ghcr.io": {"username": "NAME", "password": "TOKEN"}}}'


@dataclass(frozen=True, slots=True)
class RegistryCredentials(Step):
    """Keep the registry credentials on the Mac."""

    name: ClassVar[str] = "registry-credentials"
    title: ClassVar[str] = "registry credentials of the agent"

    content: Secret
    user: str

    def __post_init__(self) -> None:
        if problem := _problem(self.content):
            raise BadConfiguration(f"the registry credentials {problem}")

    def desired(self) -> drift.DesiredPart:
        """Stamp that the file exists; its content is compared with the file itself."""
        digest = drift.digest(host.REGISTRY_CREDENTIALS.encode())
        return drift.DesiredPart(drift.Part.REGISTRY_CREDENTIALS, {"path": digest})

    def probes(self) -> list[Probe]:
        """Probe the file's metadata, and its folder."""
        return [_FILE, Stat(host.AGENT_FOLDER)]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Write the file if it differs."""
        owner = f"{self.user}:staff"
        yield from archive_install.ensure_folder(facts, host.AGENT_FOLDER, owner=owner)
        stat = facts.stat(_FILE)
        digest = hashlib.sha256(self.content.reveal().encode()).hexdigest()
        if stat and (stat.kind, stat.mode, stat.owner, stat.digest) == (FILE, MODE, owner, digest):
            return
        yield Write(
            path=host.REGISTRY_CREDENTIALS,
            content=self.content,
            purpose="write the registry credentials of the agent",
            mode=MODE,
            owner=owner,
        )


def _problem(content: Secret) -> str:
    """Return what is wrong with a file, without its content; empty if the agent can log in with each entry."""
    try:
        logins = msgspec.json.decode(content.reveal(), type=DockerConfig).auths
    # Too deeply nested, too.
    except (msgspec.MsgspecError, RecursionError):
        return f"are not JSON in the format of Docker's config.json, such as {_EXAMPLE}"
    if not logins:
        return f"contain no login; write them in the format {_EXAMPLE}"
    for number, (registry, login) in enumerate(logins.items(), start=1):
        if len(registry) > _MAX_KEY_LENGTH or not _REGISTRY.fullmatch(registry):
            # Not shown: it may be a secret in the wrong place.
            return f"have a key that is not a registry, the {number}. of auths; write them in the format {_EXAMPLE}"
        if login.decode() is None:
            return (
                f"contain no name and password for {registry}. Docker may have stored them in the keychain of the computer on which "
                f"the login was made (credsStore); write them in the format {_EXAMPLE}"
            )
    return ""
