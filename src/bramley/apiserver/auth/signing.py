"""The keys that ServiceAccount tokens are signed with: EC P-256, made on first need, several at a time so that they can change.

The first key signs; all of them verify, an older one until all that it signed has ended, or until `retire` drops it. They stand
in one private file of the data folder, each after a line that tells until when it verifies, or in memory only. Nobody outside of
this module sees a private key.
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
    """One key, and until when it verifies."""

    pem: bytes
    until: datetime | None = None

    def written(self) -> bytes:
        """Return it as it stands in the file; text before a key is none of its own to all who read PEM."""
        told = b"" if self.until is None else _UNTIL + self.until.isoformat().encode() + b"\n"
        return told + self.pem


class Keys:
    """The signing keys of one data folder, or of this process only."""

    def __init__(self, path: Path | None, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._entries: tuple[_Entry, ...] | None = None
        self._private: dict[str, EllipticCurvePrivateKey] = {}
        self.changes = 0

    @classmethod
    def open(cls, folder: Path, *, clock: Clock | None = None) -> Keys:
        """Use the keys of a data folder; they are read, or made, when the first one is needed."""
        return cls(folder / FILE, clock)

    @classmethod
    def in_memory(cls, *, clock: Clock | None = None) -> Keys:
        """Return keys that are forgotten with the process."""
        return cls(None, clock)

    def sign(self, claims: dict[str, Any]) -> str:
        """Return claims as a token signed by the newest key."""
        import jwt

        name, key = next(iter(self._loaded().items()))
        return jwt.encode(claims, key, ALGORITHM, headers={"kid": name})

    def find(self, name: str) -> EllipticCurvePublicKey | None:
        """Return the public key of a name; None if it is none of ours, or no longer."""
        key = self._loaded().get(name)
        return None if key is None else key.public_key()

    def published(self) -> list[dict[str, str]]:
        """Return the public keys as a JSON Web Key Set has them."""
        return [_web_key(name, key.public_key()) for name, key in self._loaded().items()]

    def rotate(self, *, until: datetime) -> None:
        """Sign with a new key from now on; what the one before signed stays good until then."""
        self._loaded()
        newest, *older = self._alive()
        ended = _Entry(newest.pem, until)
        self._keep((_Entry(certificates.new_key()), ended, *older))

    def retire(self) -> None:
        """Forget all keys but the newest: what they signed is void from now on."""
        self._loaded()
        self._keep(self._alive()[:1])

    def told(self) -> list[tuple[str, datetime | None]]:
        """Return the name of each key, the one that signs first, and until when it verifies, None for no end yet."""
        names = self._loaded()
        return [(name, each.until) for name, each in zip(names, self._alive(), strict=True)]

    def _loaded(self) -> dict[str, EllipticCurvePrivateKey]:
        if self._entries is None:
            content = None if self._path is None else private_files.read(self._path)
            if content is None:
                self._keep((_Entry(certificates.new_key()),))
            else:
                self._take(self._split(content))
        alive = self._alive()
        if alive != self._entries:
            self._take(alive)
            # Nothing that is good any more was signed by them, so a disk that is full may keep them for now.
            with contextlib.suppress(BadConfiguration):
                self._write(alive)
        return self._private

    def _alive(self) -> tuple[_Entry, ...]:
        """Return the keys that are of use: the newest, and those whose tokens may still be about."""
        now = self._clock.now()
        entries = self._entries or ()
        return entries[:1] + tuple(
            each for each in entries[1:] if each.until is None or each.until > now
        )

    def _keep(self, entries: tuple[_Entry, ...]) -> None:
        # Written first: a token must never be signed with a key that the next start does not know.
        self._write(entries)
        self._take(entries)

    def _write(self, entries: tuple[_Entry, ...]) -> None:
        if self._path is not None:
            private_files.write(self._path, b"".join(each.written() for each in entries))

    def _split(self, content: bytes) -> tuple[_Entry, ...]:
        try:
            return tuple(_entry(part) for part in content.split(_END) if part.strip())
        except ValueError as error:
            raise self._damaged("it holds something else than keys") from error

    def _take(self, entries: tuple[_Entry, ...]) -> None:
        try:
            keys = [certificates.private_key(each.pem) for each in entries]
        except certificates.BadCertificate as error:
            raise self._damaged(str(error)) from error
        if not keys:
            raise self._damaged("it holds no key")
        self._private = {_name(key.public_key()): key for key in keys}
        self._entries = entries
        self.changes += 1

    def _damaged(self, why: str) -> BadConfiguration:
        return BadConfiguration(
            f"{self._path} cannot be used: {why}; restore it from a backup, or remove it to make a new key "
            "(tokens of ServiceAccounts made before stop working)"
        )


def _entry(part: bytes) -> _Entry:
    before, begin, key = part.partition(_BEGIN)
    told = before.strip().removeprefix(_UNTIL)
    until = datetime.fromisoformat(told.decode()) if told else None
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
