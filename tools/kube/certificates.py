"""Keys and certificates of a control plane: one authority, what it signs, and the service accounts' key pair.

Leaf certificates are created at each start, so they never expire on a running instance; only the authority is kept.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> None:
        """Write both beside each other, the key for the owner only."""
        write_private(folder / f"{name}.key", self.key)
        (folder / f"{name}.crt").write_bytes(self.certificate)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that the whole instance trusts."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls) -> Authority:
        """Make a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = subject("bramley-test-ca")
        builder = unsigned(name, issuer=name, life=AUTHORITY_LIFE).public_key(key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(key_usage(signs_certificates=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """Read the authority of an earlier start."""
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{folder / 'ca.key'} holds a key of another kind")
        return cls(x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()), key)

    @property
    def pair(self) -> Pair:
        """The authority itself as PEM."""
        return Pair(self.certificate.public_bytes(serialization.Encoding.PEM), key_pem(self.key))

    def client(self, user: str, *, groups: Sequence[str] = ()) -> Pair:
        """Sign a client certificate."""
        return self.sign(subject(user, groups), usage=ExtendedKeyUsageOID.CLIENT_AUTH)

    def server(self, user: str, *, names: Sequence[str], addresses: Sequence[str]) -> Pair:
        """Sign a certificate for a server reached by these names and addresses."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(text)) for text in addresses]
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        return self.sign(subject(user), usage=usage, alternatives=alternatives)

    def sign(
        self,
        name: x509.Name,
        *,
        usage: x509.ObjectIdentifier,
        alternatives: Sequence[x509.GeneralName] = (),
    ) -> Pair:
        """Make a key and sign its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = unsigned(name, issuer=self.certificate.subject, life=LEAF_LIFE)
        builder = builder.public_key(key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = builder.add_extension(key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if alternatives:
            names = x509.SubjectAlternativeName(alternatives)
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


def subject(user: str, groups: Sequence[str] = ()) -> x509.Name:
    """Return a name as Kubernetes reads it: common name = user, organisations = groups."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def unsigned(name: x509.Name, *, issuer: x509.Name, life: timedelta) -> x509.CertificateBuilder:
    """Begin a certificate that is valid from now on."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - CLOCK_SKEW).not_valid_after(now + life)


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return what the key may be used for."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """Return a private key as PEM."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write_service_account_keys(folder: Path) -> None:
    """Write the key pair that signs service account tokens: RSA, as on most clusters."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = key.public_key().public_bytes(serialization.Encoding.PEM, form)
    write_private(folder / "service-account.key", key_pem(key))
    (folder / "service-account.pub").write_bytes(public)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def ensure(folder: Path) -> Authority:
    """Write everything a start needs into the folder, keeping the authority and token keys of before."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if not (folder / "ca.crt").exists():
        write_service_account_keys(folder)
        Authority.create().pair.write(folder, "ca")
    authority = Authority.load(folder)
    loopback = authority.server(
        "kube-apiserver",
        names=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
        addresses=("127.0.0.1", "::1", "10.0.0.1"),
    )
    loopback.write(folder, "serving")
    for name, user, groups in CLIENTS:
        authority.client(user, groups=groups).write(folder, name)
    return authority


CLIENTS = (
    ("admin", "kubernetes-admin", ("system:masters",)),
    # kube-apiserver shows this one to kubelets when it asks them for logs.
    ("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",)),
    ("kube-controller-manager", "system:kube-controller-manager", ()),
    ("kube-scheduler", "system:kube-scheduler", ()),
)
