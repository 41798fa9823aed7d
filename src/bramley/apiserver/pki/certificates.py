"""Creates and reads certificates: our own authority and the certificates that it signs, all EC P-256.

The cryptography library is large, so functions import it when they need it. Nothing here touches files.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_NAME = "bramley-ca"
SERVING_NAME = "bramley-apiserver"
# Clocks differ; a certificate that starts a little in the past is valid everywhere at once.
SKEW = timedelta(minutes=5)


class BadCertificate(ValueError):
    """A certificate or key cannot be read."""


class Facts(msgspec.Struct, frozen=True):
    """The properties of a certificate that decide whether it is usable."""

    since: datetime
    until: datetime
    hosts: frozenset[str]
    key_matches: bool
    signed_by_authority: bool

    def is_due(self, now: datetime) -> bool:
        """Return whether two thirds of its lifetime are over, or it is not valid yet."""
        return now < self.since or now >= self.renewal

    @property
    def renewal(self) -> datetime:
        """Return when it should be renewed."""
        return self.until - (self.until - self.since) / 3


def new_key() -> bytes:
    """Return a new private key as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def authority(key: bytes, *, now: datetime, lifetime: timedelta) -> bytes:
    """Return a certificate for an authority; with the same key, clients of the old certificate accept it too."""
    from cryptography import x509

    private = private_key(key)
    name = _name(AUTHORITY_NAME)
    builder = _builder(name, name, private, now=now, lifetime=lifetime)
    usage = _usage(sign_certificates=True)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return _signed(builder, private)


def serving(
    key: bytes,
    hosts: Iterable[str],
    *,
    signer: tuple[bytes, bytes],
    now: datetime,
    lifetime: timedelta,
) -> bytes:
    """Return a certificate for a server; `signer` is the authority's certificate and key."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    names = x509.SubjectAlternativeName([_general_name(host) for host in sorted(hosts)])
    use = ExtendedKeyUsageOID.SERVER_AUTH
    name = _name(SERVING_NAME)
    return _leaf(key, name, signer=signer, now=now, lifetime=lifetime, use=use, more=(names,))


def client(
    key: bytes,
    owner: tuple[str, Iterable[str]],
    *,
    signer: tuple[bytes, bytes],
    now: datetime,
    lifetime: timedelta,
) -> bytes:
    """Return a certificate for a user, given as name and groups; `signer` is the authority's certificate and key."""
    from cryptography.x509.oid import ExtendedKeyUsageOID

    name = _name(owner[0], owner[1])
    use = ExtendedKeyUsageOID.CLIENT_AUTH
    return _leaf(key, name, signer=signer, now=now, lifetime=lifetime, use=use)


def _leaf(
    key: bytes,
    name: x509.Name,
    *,
    signer: tuple[bytes, bytes],
    now: datetime,
    lifetime: timedelta,
    use: x509.ObjectIdentifier,
    more: Iterable[x509.ExtensionType] = (),
) -> bytes:
    from cryptography import x509

    private, issuer, signing = private_key(key), _certificate(signer[0]), private_key(signer[1])
    builder = _builder(name, issuer.subject, private, now=now, lifetime=lifetime)
    parent = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(sign_certificates=False), True),
        (x509.ExtendedKeyUsage([use]), False),
        *((extension, False) for extension in more),
        (parent, False),
    ]
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return _signed(builder, signing)


def read(certificate: bytes, key: bytes, *, signer: bytes | None = None) -> Facts:
    """Return the facts of a certificate and its key; raise BadCertificate if one cannot be read."""
    parsed, private = _certificate(certificate), private_key(key)
    issuer = parsed if signer is None else _certificate(signer)
    return Facts(
        parsed.not_valid_before_utc,
        parsed.not_valid_after_utc,
        _hosts(parsed),
        parsed.public_key() == private.public_key(),
        _is_signed_by(parsed, issuer),
    )


def _hosts(certificate: x509.Certificate) -> frozenset[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in names)


def _is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    *,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    from cryptography import x509

    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(identifier, critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(common_name: str, organisations: Iterable[str] = ()) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def private_key(pem: bytes) -> EllipticCurvePrivateKey:
    """Return the private key in a PEM text; raise BadCertificate if it is not a usable one."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadCertificate("it is not a private key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadCertificate("its key is not an elliptic curve key")
    return key


def _certificate(pem: bytes) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise BadCertificate("it is not a certificate") from error
