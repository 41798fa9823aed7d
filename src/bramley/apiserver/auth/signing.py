"""The keys that ServiceAccount tokens are signed with: EC P-256, made on first need, several at a time so that they can change.

The first key signs; all of them verify, until `retire` drops the older ones. They stand in one private file of the data
folder, or in memory only. Nobody outside of this module sees a private key.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bramley.apiserver import certificates, private_files
from bramley.base.errors import BadConfiguration

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

FILE = "service-accounts.key"
ALGORITHM = "ES256"
_END = b"-----END PRIVATE KEY-----\n"
_COORDINATE_BYTES = 32


class Keys:
    """The signing keys of one data folder, or of this process only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._pems: tuple[bytes, ...] | None = None
        self._private: dict[str, EllipticCurvePrivateKey] = {}
        self.changes = 0

    @classmethod
    def open(cls, folder: Path) -> Keys:
        """Use the keys of a data folder; they are read, or made, when the first one is needed."""
        return cls(folder / FILE)

    @classmethod
    def in_memory(cls) -> Keys:
        """Return keys that are forgotten with the process."""
        return cls(None)

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

    def rotate(self) -> None:
        """Sign with a new key from now on; what the older ones signed stays good."""
        self._loaded()
        self._keep((certificates.new_key(), *(self._pems or ())))

    def retire(self) -> None:
        """Forget all keys but the newest: what they signed is void from now on."""
        self._loaded()
        self._keep((self._pems or ())[:1])

    def _loaded(self) -> dict[str, EllipticCurvePrivateKey]:
        if self._pems is None:
            content = None if self._path is None else private_files.read(self._path)
            if content is None:
                self._keep((certificates.new_key(),))
            else:
                self._take(_split(content))
        return self._private

    def _keep(self, pems: tuple[bytes, ...]) -> None:
        # Written first: a token must never be signed with a key that the next start does not know.
        if self._path is not None:
            private_files.write(self._path, b"".join(pems))
        self._take(pems)

    def _take(self, pems: tuple[bytes, ...]) -> None:
        try:
            keys = [certificates.private_key(pem) for pem in pems]
        except certificates.BadCertificate as error:
            raise self._damaged(str(error)) from error
        if not keys:
            raise self._damaged("it holds no key")
        self._private = {_name(key.public_key()): key for key in keys}
        self._pems = pems
        self.changes += 1

    def _damaged(self, why: str) -> BadConfiguration:
        return BadConfiguration(
            f"{self._path} cannot be used: {why}; restore it from a backup, or remove it to make a new key "
            "(tokens of ServiceAccounts made before stop working)"
        )


def _split(content: bytes) -> tuple[bytes, ...]:
    return tuple(part + _END for part in content.split(_END) if part.strip())


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
