"""The signing keys of ServiceAccount tokens: EC P-256, generated at first use, several at a time so that they can be rotated.

The first key signs; all of them verify, an older one until all its tokens have expired or until `retire` drops it. They are
stored in one private file of the data folder, each after a line with the time until which it verifies, or only in memory. No
private key leaves this module.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bramley.apiserver.pki import certificates, private_files
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

FILE = "service-accounts.key"
ALGORITHM = "ES256"
_BEGIN = b"-----BEGIN PRIVATE KEY-----\n"
_END = b"-----END PRIVATE KEY-----\n"
_UNTIL = b"Verifies until "
_COORDINATE_BYTES = 32


class _Entry(msgspec.Struct, frozen=True):
    """One key, and until when it verifies tokens."""

    pem: bytes
    until: datetime | None = None

    def encoded(self) -> bytes:
        """Return its part of the file; PEM readers ignore text before a key."""
        line = b"" if self.until is None else _UNTIL + self.until.isoformat().encode() + b"\n"
        return line + self.pem


class SigningKeys:
    """The signing keys of one data folder, or of this process only."""

    def __init__(self, path: Path | None, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._entries: tuple[_Entry, ...] | None = None
        self._private: dict[str, EllipticCurvePrivateKey] = {}
        self.changes = 0

    @classmethod
    def open(cls, folder: Path, *, clock: Clock | None = None) -> SigningKeys:
        """Use the keys of a data folder; they are read or generated at first use."""
        return cls(folder / FILE, clock)

    @classmethod
    def in_memory(cls, *, clock: Clock | None = None) -> SigningKeys:
        """Return keys that live as long as the process."""
        return cls(None, clock)

    def sign(self, claims: dict[str, Any]) -> str:
        """Return claims as a token signed by the newest key."""
        import jwt

        name, key = next(iter(self._load().items()))
        return jwt.encode(claims, key, ALGORITHM, headers={"kid": name})

    def find(self, name: str) -> EllipticCurvePublicKey | None:
        """Return the public key with a name; None if there is none, or not any more."""
        key = self._load().get(name)
        return None if key is None else key.public_key()

    def json_web_keys(self) -> list[dict[str, str]]:
        """Return the public keys in the form of a JSON Web Key Set."""
        return [_web_key(name, key.public_key()) for name, key in self._load().items()]

    def rotate(self, *, until: datetime) -> None:
        """Sign with a new key from now on; tokens of the previous one stay valid until the given time."""
        self._load()
        newest, *older = self._unexpired()
        retiring = _Entry(newest.pem, until)
        self._save((_Entry(certificates.new_key()), retiring, *older))

    def retire(self) -> None:
        """Drop all keys but the newest: tokens that they signed are invalid from now on."""
        self._load()
        self._save(self._unexpired()[:1])

    def key_ids(self) -> list[tuple[str, datetime | None]]:
        """Return the name of each key and until when it verifies, the signing key first, None for no end yet."""
        names = self._load()
        return [(name, each.until) for name, each in zip(names, self._unexpired(), strict=True)]

    def _load(self) -> dict[str, EllipticCurvePrivateKey]:
        if self._entries is None:
            content = None if self._path is None else private_files.read(self._path)
            if content is None:
                self._save((_Entry(certificates.new_key()),))
            else:
                self._set_entries(self._split(content))
        alive = self._unexpired()
        if alive != self._entries:
            self._set_entries(alive)
            # No valid token was signed by the expired keys, so a full disk may keep them for now.
            with contextlib.suppress(BadConfiguration):
                self._write(alive)
        return self._private

    def _unexpired(self) -> tuple[_Entry, ...]:
        """Return the newest key, and those whose tokens may still be valid."""
        now = self._clock.now()
        entries = self._entries or ()
        return entries[:1] + tuple(
            each for each in entries[1:] if each.until is None or each.until > now
        )

    def _save(self, entries: tuple[_Entry, ...]) -> None:
        # Written before use: a token must never be signed with a key that the next start does not know.
        self._write(entries)
        self._set_entries(entries)

    def _write(self, entries: tuple[_Entry, ...]) -> None:
        if self._path is not None:
            private_files.write(self._path, b"".join(each.encoded() for each in entries))

    def _split(self, content: bytes) -> tuple[_Entry, ...]:
        try:
            return tuple(_entry(block) for block in content.split(_END) if block.strip())
        except ValueError as error:
            raise self._damaged("it does not hold only keys") from error

    def _set_entries(self, entries: tuple[_Entry, ...]) -> None:
        try:
            keys = [certificates.private_key(each.pem) for each in entries]
        except certificates.BadCertificate as error:
            raise self._damaged(str(error)) from error
        if not keys:
            raise self._damaged("it holds no key")
        self._private = {_name(key.public_key()): key for key in keys}
        self._entries = entries
        self.changes += 1

    def _damaged(self, reason: str) -> BadConfiguration:
        return BadConfiguration(
            f"{self._path} cannot be used: {reason}; restore it from a backup, or remove it to make a new key "
            "(tokens of ServiceAccounts made before stop working)"
        )


def _entry(block: bytes) -> _Entry:
    before, begin, key = block.partition(_BEGIN)
    stated = before.strip().removeprefix(_UNTIL)
    until = datetime.fromisoformat(stated.decode()) if stated else None
    return _Entry(begin + key + _END, until)


def _name(key: EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives import serialization

    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _text(hashlib.sha256(der).digest())


def _web_key(name: str, key: EllipticCurvePublicKey) -> dict[str, str]:
    numbers = key.public_numbers()
    return {
        "use": "sig",
        "kty": "EC",
        "kid": name,
        "crv": "P-256",
        "alg": ALGORITHM,
        "x": _text(numbers.x.to_bytes(_COORDINATE_BYTES, "big")),
        "y": _text(numbers.y.to_bytes(_COORDINATE_BYTES, "big")),
    }


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
