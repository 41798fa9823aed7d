"""Certificates for tests, made on the spot."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key in PEM."""

    certificate: str
    key: str


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs for servers and clients."""

    certificate: str
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = certificate("test authority", "test authority", key)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        signed = builder.sign(key, hashes.SHA256())
        return cls(signed.public_bytes(serialization.Encoding.PEM).decode(), key)

    def client(self, who: str) -> Pair:
        return self._signed(who, who)

    def server_context(
        self, folder: Path, where: str, *, clients: ssl.VerifyMode = ssl.CERT_OPTIONAL
    ) -> ssl.SSLContext:
        pair = self._signed("server", where)
        chain, authority = folder / "server.pem", folder / "authority.pem"
        chain.write_text(pair.certificate + pair.key)
        authority.write_text(self.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        context.load_verify_locations(authority)
        context.verify_mode = clients
        return context

    def _signed(self, who: str, where: str) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = certificate(who, "test authority", key)
        names = x509.SubjectAlternativeName([alternative(where)])
        signed = builder.add_extension(names, critical=False).sign(self.key, hashes.SHA256())
        return Pair(signed.public_bytes(serialization.Encoding.PEM).decode(), pem(key))


def certificate(who: str, by: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name(who))
        .issuer_name(name(by))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )
