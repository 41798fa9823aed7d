"""Bearer tokens of users: 256 random bits each, of which only the SHA-256 is stored.

The file names the users, but no token can be derived from it. A token leaves this module once, as a `Secret`, when it is
issued. The file belongs to the process that has locked the data folder.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from pathlib import Path

import msgspec

from bramley.apiserver.apimachinery.users import AUTHENTICATED, MASTERS, User
from bramley.apiserver.pki import private_files
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

__all__ = ["ADMIN", "ADMIN_GROUPS", "FILE", "Tokens", "User"]

FILE = "tokens.json"
ADMIN = "admin"
ADMIN_GROUPS = (MASTERS, AUTHENTICATED)
_BYTES = 32


class _Entry(msgspec.Struct, frozen=True):
    """One token as it is stored."""

    sha256: str
    user: User


class _File(msgspec.Struct, frozen=True):
    """The whole file."""

    tokens: list[_Entry]
    version: int = 1


class Tokens:
    """The tokens of one data folder, or of this process only when there is no folder."""

    def __init__(self, path: Path | None, entries: dict[str, User]) -> None:
        self._path = path
        self._entries = entries

    @classmethod
    def open(cls, folder: Path) -> Tokens:
        """Read the tokens of a data folder; none when it is new."""
        path = folder / FILE
        content = private_files.read(path)
        return cls(path, {} if content is None else _entries(path, content))

    @classmethod
    def in_memory(cls) -> Tokens:
        """Return tokens that live as long as the process."""
        return cls(None, {})

    def identify(self, token: str | None) -> User | None:
        """Return the owner of a token, in a time that does not depend on how close a guess is."""
        if not token:
            return None
        digest = _digest(token)
        for stored_digest, user in self._entries.items():
            if hmac.compare_digest(stored_digest, digest):
                return user
        return None

    def issue(self, name: str, groups: tuple[str, ...] = ()) -> Secret:
        """Issue a token for a user; the user's previous tokens are invalid from now on."""
        token = secrets.token_urlsafe(_BYTES)
        remaining = {digest: user for digest, user in self._entries.items() if user.name != name}
        self._save({**remaining, _digest(token): User(name, groups, str(uuid.uuid4()))})
        return Secret(token)

    def revoke(self, name: str) -> bool:
        """Invalidate every token of a user; return whether there was one."""
        remaining = {digest: user for digest, user in self._entries.items() if user.name != name}
        existed = len(remaining) < len(self._entries)
        self._save(remaining)
        return existed

    def _save(self, entries: dict[str, User]) -> None:
        # Written before use: a token that works now must also work after a restart, and a revoked one never again.
        if self._path is not None:
            rows = [_Entry(digest, user) for digest, user in entries.items()]
            private_files.write(self._path, msgspec.json.format(msgspec.json.encode(_File(rows))))
        self._entries = entries


def _entries(path: Path, content: bytes) -> dict[str, User]:
    try:
        file = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError as error:
        raise BadConfiguration(
            f"{path} is damaged ({error}); restore it from a backup, or remove it to void all tokens: "
            "the next start writes a new kubeconfig"
        ) from error
    if file.version != 1:
        raise BadConfiguration(
            f"{path} has version {file.version}, which this release does not know; use the release that wrote it"
        )
    return {entry.sha256: entry.user for entry in file.tokens}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
