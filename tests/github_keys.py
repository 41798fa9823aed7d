"""Private keys of GitHub Apps for tests, in the formats that are accepted and in others."""

from __future__ import annotations

import base64
import codecs
import functools

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from bramley.github import app_keys
from bramley.github.app_keys import AppCredentials, AppKey
from tests import virtual_time

PRIVATE_FORMATS = {"pkcs1": PrivateFormat.TraditionalOpenSSL, "pkcs8": PrivateFormat.PKCS8}


def rsa_key(name: str = "first", bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return a key that is the same for the same name within a process."""
    return _rsa_key(name, bits)


@functools.cache
def _rsa_key(_name: str, bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, form: str = "pkcs1") -> bytes:
    return key.private_bytes(Encoding.PEM, PRIVATE_FORMATS[form], NoEncryption())


@functools.cache
def app_key(name: str = "first", form: str = "pkcs1") -> AppKey:
    return app_keys.load(pem(rsa_key(name), form))


def credentials(name: str = "first", form: str = "pkcs1", app_id: str = "1") -> AppCredentials:
    return AppCredentials(app_id, app_key(name, form))


@functools.cache
def other_contents() -> dict[str, bytes]:
    """Return files that are no key of an App, by the words that the error has to contain."""
    key, curve = rsa_key(), ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    whole = pem(key)
    passphrase = BestAvailableEncryption(b"passphrase")
    return {
        "an EC private key": pem(curve),
        "a PKCS#8 private key of the type EC": pem(curve, "pkcs8"),
        "a PKCS#8 private key of the type Ed25519": ed25519.Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ),
        "an encrypted private key; remove its passphrase": key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, passphrase
        ),
        "an encrypted private key": key.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, passphrase
        ),
        "an OpenSSH private key": key.private_bytes(
            Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
        ),
        "an OpenSSH public key": public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH),
        "a public key": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "found a public key": public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        "a certificate": certificate(key),
        "DER": key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        "a PEM file in base64": base64.b64encode(whole),
        "a PEM file in base64; decode it first": codecs.BOM_UTF8 + base64.b64encode(whole),
        "UTF-16 text": whole.decode().encode("utf-16"),
        "an empty file": b" \n",
        'a PEM block with literal "\\n"': whole.replace(b"\n", b"\\n"),
        "a PEM block without its end": whole[: len(whole) // 2],
        "a damaged block RSA PRIVATE KEY": whole[:100] + whole[160:],
        "a PEM block of another type": b"-----BEGIN PGP MESSAGE-----\nxyz\n-----END PGP MESSAGE-----",
        "a single word": b"123456",
        "no PEM block": b"the key is in the vault",
        "an RSA key of only 1024 bits": pem(rsa_key("short", 1024)),
    }


def certificate(key: rsa.RSAPrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    built = builder.not_valid_before(virtual_time.EPOCH).not_valid_after(
        virtual_time.EPOCH + virtual_time.A_YEAR
    )
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
