"""The private key of a GitHub App, and the JWTs signed with it.

An RSA key is accepted as PKCS#1 or PKCS#8 PEM. Anything else is rejected with an error that names what was found, because an
operator pastes this file by hand; no error contains a part of it.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from bramley.base import errors
from bramley.base.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

# GitHub rejects a JWT from the future, so one of a clock that is fast by this much must still be valid.
BACKDATED = timedelta(seconds=60)
# GitHub allows ten minutes; a clock that is fast by `BACKDATED` stays within them.
LIFETIME = timedelta(minutes=9)
MIN_KEY_BITS = 2048

_EXPECTED = "expected the RSA private key of a GitHub App (PKCS#1 or PKCS#8 PEM)"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----(.*?)-----END \1-----", re.DOTALL)
# OpenSSL writes the curve in a separate block before the key.
_SKIPPED_BLOCKS = {"EC PARAMETERS"}
_RSA_BLOCKS = {"RSA PRIVATE KEY", "PRIVATE KEY"}
_OTHER_BLOCKS = {
    "EC PRIVATE KEY": "an EC private key",
    "DSA PRIVATE KEY": "a DSA private key",
    "ENCRYPTED PRIVATE KEY": "an encrypted private key; remove its passphrase with: openssl pkey",
    "OPENSSH PRIVATE KEY": "an OpenSSH private key",
    "PUBLIC KEY": "a public key",
    "RSA PUBLIC KEY": "a public key",
    "CERTIFICATE": "a certificate",
    "CERTIFICATE REQUEST": "a certificate request",
}
# Content without a whole PEM block, by a pattern that the beginning matches.
_NO_BLOCK = (
    (re.compile(r"\Z"), "an empty file"),
    (re.compile(r"-----BEGIN "), "a PEM block without its end"),
    (re.compile(r"\xff\xfe|\xfe\xff"), "UTF-16 text; save it as UTF-8"),
    (re.compile(r"(ssh|ecdsa)-"), "an OpenSSH public key"),
    (re.compile(r"LS0tLS1CRUdJTi"), "a PEM file in base64; decode it first"),
    (re.compile(r"0\x82|0\x81"), "DER; convert it with: openssl rsa -inform DER"),
    (re.compile(r"(Iv1\.|Iv23)?[0-9A-Za-z]{1,24}\Z"), "a single word, perhaps an ID"),
)


@dataclass(frozen=True, slots=True)
class AppKey:
    """A private key that only signs; its fingerprint is the one that GitHub shows in the settings of the App."""

    fingerprint: str
    _key: RSAPrivateKey

    def __repr__(self) -> str:
        return f"AppKey({self.fingerprint})"

    def public_key(self) -> RSAPublicKey:
        """Return the public key, which verifies what this key signs."""
        return self._key.public_key()

    def sign(self, claims: dict[str, object]) -> Secret:
        """Return a JWT with these claims, signed by RS256."""
        import jwt

        return Secret(jwt.encode(claims, self._key, algorithm="RS256"))


@dataclass(frozen=True, slots=True)
class AppCredentials:
    """The identity of a GitHub App: its App ID or client ID, and a private key."""

    app_id: str
    key: AppKey

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9.]{1,64}", self.app_id):
            raise errors.BadConfiguration(
                "the App ID is not valid: use the number, or the client ID, of the GitHub App's settings"
            )

    def token(self, now: datetime) -> Secret:
        """Return a JWT that authenticates the App for the next minutes."""
        issued = int((now - BACKDATED).timestamp())
        expires = int((now + LIFETIME).timestamp())
        return self.key.sign({"iat": issued, "exp": expires, "iss": self.app_id})


def load(content: bytes, source: str = "private key") -> AppKey:
    """Return the key in this PEM; BadConfiguration names `source` and what was found instead."""
    # Latin-1 decodes any bytes, also those of a DER file.
    text = content.removeprefix(codecs.BOM_UTF8).decode("latin-1").replace("\r\n", "\n").strip()
    blocks = [each for each in _BLOCK.finditer(text) if each[1] not in _SKIPPED_BLOCKS]
    if not blocks:
        raise _unexpected(source, _without_block(text))
    label = blocks[0][1]
    if label not in _RSA_BLOCKS:
        raise _unexpected(source, _OTHER_BLOCKS.get(label, "a PEM block of another type"))
    if "ENCRYPTED" in blocks[0][2]:
        raise _unexpected(source, _OTHER_BLOCKS["ENCRYPTED PRIVATE KEY"])
    if "\\n" in blocks[0][2]:
        raise _unexpected(source, 'a PEM block with literal "\\n" instead of line ends')
    return _parsed(blocks[0][0], label, source)


def _parsed(block: str, label: str, source: str) -> AppKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    try:
        key = serialization.load_pem_private_key(block.encode("latin-1"), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Not chained: the library's message is about the content.
        raise _unexpected(source, f"a damaged block {label}") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        name = type(key).__name__.removeprefix("_").removesuffix("PrivateKey")
        raise _unexpected(source, f"a PKCS#8 private key of the type {name}")
    if key.key_size < MIN_KEY_BITS:
        raise _unexpected(source, f"an RSA key of only {key.key_size} bits")
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = base64.b64encode(hashlib.sha256(public).digest()).decode()
    return AppKey(f"SHA256:{digest}", key)


def _without_block(text: str) -> str:
    return next((found for pattern, found in _NO_BLOCK if pattern.match(text)), "no PEM block")


def _unexpected(source: str, found: str) -> errors.BadConfiguration:
    return errors.BadConfiguration(f"{source}: {_EXPECTED}, found {found}")
