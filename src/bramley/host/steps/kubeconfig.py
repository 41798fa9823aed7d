"""The agent's way to the cluster: a file that only its user may read, and beside it a note of what may be known of it.

The agent renews its token by itself, so the one in the file is only where it began and what it falls back to. The file is written
anew when it leads elsewhere or names somebody else, or when little is left of its token's life; another token alone is no reason.
Nothing of the file but its size, owner, mode and digest ever leaves the Mac. Tokens without an end are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from bramley.api.names import access, host
from bramley.base import jwt_claims as tokens
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import agent_daemon, archive_install, drift
from bramley.host.commands import Command, Probe, ReadFile, Stat, Write
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.kube import kubeconfig

PRIVATE = 0o600
# The part of its life that a token in the file must still have before it when another one could take its place.
LEAST_LEFT = 0.2
_FILE = Stat(host.AGENT_KUBECONFIG, digest=True)
_NOTE = ReadFile(host.KUBECONFIG_NOTE, max_bytes=64 * 1024)
# All its questions, for who has to ask them before there is a kubeconfig.
PROBES: tuple[Probe, ...] = (_FILE, _NOTE, Stat(host.AGENT_FOLDER), *agent_daemon.RESTART_PROBES)
_PLACE = "the agent's kubeconfig"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What may be known of a kubeconfig; times are 0 for a credential that does not tell any."""

    server: str
    authority: str
    user: str
    issued: int = 0
    expires: int = 0
    digest: str = ""

    def is_same_way(self, other: Note) -> bool:
        """Tell whether both lead to the same server as the same user."""
        one, two = ((note.server, note.authority, note.user) for note in (self, other))
        return one == two

    def lasts(self, other: Note) -> bool:
        """Tell whether this one was still worth something when the other one was made."""
        life = other.expires - other.issued
        return life > 0 and self.expires - other.issued > life * LEAST_LEFT


class _Claims(msgspec.Struct, frozen=True):
    sub: str = ""
    iat: int = 0
    exp: int | None = None


@dataclass(frozen=True, slots=True)
class Kubeconfig(Step):
    """Keep a kubeconfig of this Node's identity on the Mac."""

    name: ClassVar[str] = "kubeconfig"
    title: ClassVar[str] = "the agent's way to the cluster"

    content: Secret
    node_name: str
    user: str
    _note: Note = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_note", note(self.content, self.node_name))

    def probes(self) -> list[Probe]:
        """Ask for the file from outside, for the note, and for the running agent."""
        return [*PROBES]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Write the file and then the note, if the file will not do; a cut in between leaves a note of another digest."""
        yield from archive_install.folder(facts, host.AGENT_FOLDER, owner=self._owner)
        if self._will_do(facts):
            return
        yield from agent_daemon.note_restart(facts)
        yield Write(
            path=host.AGENT_KUBECONFIG,
            content=self.content,
            purpose="write the agent's kubeconfig",
            mode=PRIVATE,
            owner=self._owner,
        )
        yield drift.CREATE_FOLDER
        yield Write(
            path=host.KUBECONFIG_NOTE,
            content=msgspec.json.format(msgspec.json.encode(self._note)) + b"\n",
            purpose="note where the kubeconfig leads, and until when",
        )

    @property
    def _owner(self) -> str:
        return f"{self.user}:staff"

    def _will_do(self, facts: Facts) -> bool:
        found, noted = facts.stat(_FILE), _read(facts.file(_NOTE))
        if found is None or noted is None or (found.mode, found.owner) != (PRIVATE, self._owner):
            return False
        is_untouched = found.digest == noted.digest
        is_right = noted.digest == self._note.digest or noted.lasts(self._note)
        return is_untouched and is_right and noted.is_same_way(self._note)


def note(content: Secret, node_name: str) -> Note:
    """Return what may be known of a kubeconfig; refuses one that an agent must not have."""
    chosen = kubeconfig.parse(content, _PLACE)
    cluster, user = chosen.cluster.part, chosen.user.part
    if not cluster.server.startswith("https://") or cluster.insecure_skip_tls_verify:
        raise BadConfiguration(
            f"{_PLACE} does not lead to a server that can prove who it is; make one with `bramley agent-access`"
        )
    claims = tokens.read(user.token.reveal() if user.token else "", _Claims)
    _require(claims, node_name)
    return Note(
        server=cluster.server,
        authority=_digest(cluster.certificate_authority_data or b""),
        user=claims.sub if claims else chosen.user.field,
        issued=claims.iat if claims else 0,
        expires=(claims.exp or 0) if claims else 0,
        digest=_digest(content.reveal().encode()),
    )


def _require(claims: _Claims | None, node_name: str) -> None:
    if claims is None:
        return
    if claims.exp is None:
        raise BadConfiguration(
            f"the token of {_PLACE} never ends; make one that does with `bramley agent-access`"
        )
    is_agent = claims.sub.startswith(access.USER_PREFIX)
    if is_agent and claims.sub != f"{access.USER_PREFIX}{node_name}":
        whose = claims.sub.removeprefix(access.USER_PREFIX)
        raise BadConfiguration(
            f"{_PLACE} is that of the Node {whose}, and this one is {node_name}; make one for it with `bramley agent-access`"
        )


def _read(text: bytes | None) -> Note | None:
    try:
        return msgspec.json.decode(text, type=Note) if text else None
    except msgspec.MsgspecError:
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
