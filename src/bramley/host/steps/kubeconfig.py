"""The agent's kubeconfig: a file that only its user may read, and a note of its public properties.

The agent renews its token itself, so the token in the file is only the first one and the fallback. The file is written again when its
server or user differs or when little is left of its token's lifetime; another token alone is no reason. Of the file only its
size, owner, mode and digest ever leave the Mac. Tokens that do not expire are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from bramley.api.names import access, host
from bramley.base import jwt_claims
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import agent_daemon, archive_install, drift
from bramley.host.commands import Command, Probe, ReadFile, Stat, Write
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.kube import kubeconfig

MODE = 0o600
# The fraction of its lifetime that the token in the file must still have; below it, a new token replaces it.
MIN_LIFETIME_LEFT = 0.2
_FILE = Stat(host.AGENT_KUBECONFIG, digest=True)
_NOTE = ReadFile(host.KUBECONFIG_NOTE, max_bytes=64 * 1024)
# All probes of the step, for callers that have no kubeconfig yet.
PROBES: tuple[Probe, ...] = (_FILE, _NOTE, Stat(host.AGENT_FOLDER), *agent_daemon.RESTART_PROBES)
_SUBJECT = "the agent's kubeconfig"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The public properties of a kubeconfig; times are 0 for a credential without them."""

    server: str
    authority: str
    user: str
    issued: int = 0
    expires: int = 0
    digest: str = ""

    def has_same_identity(self, other: Note) -> bool:
        """Return whether both are for the same user of the same server."""
        first, second = ((note.server, note.authority, note.user) for note in (self, other))
        return first == second

    def has_lifetime_left(self, other: Note) -> bool:
        """Return whether enough of this token's lifetime was left when the other one was issued."""
        lifetime = other.expires - other.issued
        return lifetime > 0 and self.expires - other.issued > lifetime * MIN_LIFETIME_LEFT


class _Claims(msgspec.Struct, frozen=True):
    sub: str = ""
    iat: int = 0
    exp: int | None = None


@dataclass(frozen=True, slots=True)
class Kubeconfig(Step):
    """Keep a kubeconfig of this Node's identity on the Mac."""

    name: ClassVar[str] = "kubeconfig"
    title: ClassVar[str] = "the agent's kubeconfig"

    content: Secret
    node_name: str
    user: str
    _note: Note = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_note", note_of(self.content, self.node_name))

    def probes(self) -> list[Probe]:
        """Probe the file's metadata, the note, and the running agent."""
        return [*PROBES]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Write the file and then the note, unless the file is current; an interruption in between leaves a note with another digest."""
        yield from archive_install.ensure_folder(facts, host.AGENT_FOLDER, owner=self._owner)
        if self._is_current(facts):
            return
        # Before the write: after an interruption a superfluous restart is harmless, a missing one is not.
        yield from agent_daemon.note_restart(facts)
        yield Write(
            path=host.AGENT_KUBECONFIG,
            content=self.content,
            purpose="write the agent's kubeconfig",
            mode=MODE,
            owner=self._owner,
        )
        yield drift.CREATE_FOLDER
        yield Write(
            path=host.KUBECONFIG_NOTE,
            content=msgspec.json.format(msgspec.json.encode(self._note)) + b"\n",
            purpose="record the server, user and expiry of the kubeconfig",
        )

    @property
    def _owner(self) -> str:
        return f"{self.user}:staff"

    def _is_current(self, facts: Facts) -> bool:
        stat, note = facts.stat(_FILE), _read(facts.file(_NOTE))
        if stat is None or note is None or (stat.mode, stat.owner) != (MODE, self._owner):
            return False
        is_unchanged = stat.digest == note.digest
        is_valid = note.digest == self._note.digest or note.has_lifetime_left(self._note)
        return is_unchanged and is_valid and note.has_same_identity(self._note)


def note_of(content: Secret, node_name: str) -> Note:
    """Return the note of a kubeconfig; refuses one that an agent must not have."""
    parsed = kubeconfig.parse(content, _SUBJECT)
    cluster, user = parsed.cluster.entry, parsed.user.entry
    if not cluster.server.startswith("https://") or cluster.insecure_skip_tls_verify:
        raise BadConfiguration(
            f"{_SUBJECT} has no HTTPS server whose certificate is verified; create one with `bramley agent-access`"
        )
    claims = jwt_claims.decode(user.token.reveal() if user.token else "", _Claims)
    _require(claims, node_name)
    return Note(
        server=cluster.server,
        authority=_digest(cluster.certificate_authority_data or b""),
        user=claims.sub if claims else parsed.user.field,
        issued=claims.iat if claims else 0,
        expires=(claims.exp or 0) if claims else 0,
        digest=_digest(content.reveal().encode()),
    )


def _require(claims: _Claims | None, node_name: str) -> None:
    if claims is None:
        return
    if claims.exp is None:
        raise BadConfiguration(
            f"the token of {_SUBJECT} does not expire; create one that does with `bramley agent-access`"
        )
    is_agent = claims.sub.startswith(access.USER_PREFIX)
    if is_agent and claims.sub != f"{access.USER_PREFIX}{node_name}":
        other = claims.sub.removeprefix(access.USER_PREFIX)
        raise BadConfiguration(
            f"{_SUBJECT} is for the Node {other}, and this one is {node_name}; create one for it with `bramley agent-access`"
        )


def _read(text: bytes | None) -> Note | None:
    try:
        return msgspec.json.decode(text, type=Note) if text else None
    except msgspec.MsgspecError:
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
