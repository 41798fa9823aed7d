"""TLS of the embedded API: an authority created at the first start, a serving certificate, and their renewal.

The authority keeps its key when its certificate is renewed, so kubeconfigs written before stay valid until the old
certificate expires. The running server renews the serving certificate after two thirds of its lifetime: new connections use
the new one, open ones continue. A damaged authority is an error, since a new one would lock every client out; a damaged
serving certificate is replaced.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from bramley.apiserver.pki import certificates, private_files
from bramley.apiserver.pki.certificates import BadCertificate, Facts
from bramley.base import log
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

logger = log.get(__name__)

FOLDER = "tls"
_FILES = ("ca.crt", "ca.key", "serving.crt", "serving.key")
_VERIFIED_FILE = "looked-at.json"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})


class Settings(msgspec.Struct, frozen=True):
    """The lifetimes of certificates, and how often the running server checks them."""

    authority_lifetime: timedelta = timedelta(days=3650)
    serving_lifetime: timedelta = timedelta(days=365)
    check_interval: timedelta = timedelta(hours=6)


class Identity(msgspec.Struct, frozen=True):
    """A client certificate and its key, both PEM."""

    certificate: bytes
    key: Secret


class _Verified(msgspec.Struct, frozen=True):
    """The digest of files that were verified, for which hosts, and until when they need no further check."""

    sha256: str
    hosts: frozenset[str]
    since: datetime
    until: datetime


class Certificates:
    """The authority and the serving certificate of one data folder."""

    def __init__(
        self,
        folder: Path,
        *,
        hosts: Iterable[str] = (),
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._folder = folder / FOLDER
        self._hosts = LOOPBACK | (frozenset(hosts) - _WILDCARDS)
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._context: ssl.SSLContext | None = None

    @property
    def authority(self) -> bytes:
        """Return the authority's certificate, which clients trust."""
        return private_files.read(self._path("ca.crt")) or b""

    def ensure(self) -> bool:
        """Create or renew what is missing, expiring or unusable; return whether anything changed."""
        if self._is_verified():
            return False
        renewed = self._ensure_authority()
        changed = self._ensure_serving() or renewed
        self._save_verified()
        return changed

    def context(self) -> ssl.SSLContext:
        """Return the server's TLS context; renewals update this object."""
        if self._context is None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._context.set_alpn_protocols(["http/1.1"])
            # Optional: most clients have a token instead.
            self._context.verify_mode = ssl.CERT_OPTIONAL
            self._load()
        return self._context

    def issue(self, name: str, groups: Iterable[str] = (), *, lifetime: timedelta) -> Identity:
        """Issue a client certificate: its owner is authenticated as this user, in these groups, until it expires."""
        key = certificates.new_key()
        signer = self._read("ca.crt") or b"", self._read("ca.key") or b""
        certificate_pem = certificates.client(
            key, (name, tuple(groups)), signer=signer, now=self._now(), lifetime=lifetime
        )
        return Identity(certificate_pem, Secret(key.decode()))

    async def run_renewal(self, on_renewal: Callable[[], None]) -> None:
        """Renew certificates while the server runs; `on_renewal` publishes the authority's certificate."""
        while True:
            await asyncio.sleep(self._settings.check_interval.total_seconds())
            try:
                if self.ensure():
                    self._load()
                    on_renewal()
            except BadConfiguration as error:
                # The current certificate is valid for another third of its lifetime; the next check may succeed.
                logger.error("Certificates cannot be renewed", reason=str(error))  # noqa: TRY400 - our logger

    def _is_verified(self) -> bool:
        """Return whether these files were verified before and are still valid, without loading the cryptography library."""
        try:
            verified = msgspec.json.decode(self._read(_VERIFIED_FILE) or b"", type=_Verified)
        except msgspec.DecodeError:
            return False
        is_same = verified.sha256 == self._digest() and verified.hosts >= self._hosts
        return is_same and verified.since <= self._now() < verified.until

    def _save_verified(self) -> None:
        authority, serving = (
            self._facts("ca.crt", "ca.key"),
            self._facts("serving.crt", "serving.key"),
        )
        verified = _Verified(
            sha256=self._digest(),
            hosts=serving.hosts,
            since=max(authority.since, serving.since),
            until=min(authority.renewal, serving.renewal),
        )
        # Not durable: if it is lost or truncated, the certificates are verified again.
        private_files.write_volatile(self._path(_VERIFIED_FILE), msgspec.json.encode(verified))

    def _facts(self, certificate: str, key: str) -> Facts:
        return certificates.read(self._read(certificate) or b"", self._read(key) or b"")

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name in _FILES:
            digest.update(hashlib.sha256(self._read(name) or b"").digest())
        return digest.hexdigest()

    def _load(self) -> None:
        if self._context is not None:
            self._context.load_cert_chain(self._path("serving.crt"), self._path("serving.key"))
            # Only our own authority may issue client certificates.
            self._context.load_verify_locations(cadata=self.authority.decode())

    def _ensure_authority(self) -> bool:
        certificate, key = self._read("ca.crt"), self._read("ca.key")
        if certificate is not None and key is None:
            raise self._damaged("ca.key", "it is missing")
        if certificate is not None and key is not None:
            facts = self._authority_facts(certificate, key)
            if not facts.is_due(self._clock.now()):
                return False
        logger.info("Creating certificate authority", renewed=certificate is not None)
        self._make_authority(key or self._new_key("ca.key"))
        return True

    def _authority_facts(self, certificate: bytes, key: bytes) -> Facts:
        try:
            facts = certificates.read(certificate, key)
        except BadCertificate as error:
            raise self._damaged("ca.crt and ca.key", str(error)) from error
        if not facts.key_matches:
            raise self._damaged("ca.crt and ca.key", "they do not belong together")
        return facts

    def _make_authority(self, key: bytes) -> None:
        lifetime = self._settings.authority_lifetime
        try:
            certificate_pem = certificates.authority(key, now=self._now(), lifetime=lifetime)
        except BadCertificate as error:
            raise self._damaged("ca.key", str(error)) from error
        self._write("ca.crt", certificate_pem)

    def _ensure_serving(self) -> bool:
        reason = self._serving_problem()
        if not reason:
            return False
        logger.info("Creating serving certificate", reason=reason)
        signer = self._read("ca.crt") or b"", self._read("ca.key") or b""
        # A new key each time: a stolen one is usable for a year at most.
        key = certificates.new_key()
        certificate_pem = certificates.serving(
            key,
            self._hosts,
            signer=signer,
            now=self._now(),
            lifetime=self._settings.serving_lifetime,
        )
        # A crash between the two leaves a pair that does not match; the next start replaces it.
        self._write("serving.crt", certificate_pem)
        self._write("serving.key", key)
        return True

    def _serving_problem(self) -> str:
        certificate, key = self._read("serving.crt"), self._read("serving.key")
        if certificate is None or key is None:
            return "it is missing"
        try:
            facts = certificates.read(certificate, key, signer=self._read("ca.crt"))
        except BadCertificate as error:
            return str(error)
        if not (facts.key_matches and facts.signed_by_authority):
            return "it does not belong to its key or to the authority"
        if not facts.hosts >= self._hosts:
            return "it lacks the address of the server"
        return "it expires soon" if facts.is_due(self._clock.now()) else ""

    def _new_key(self, name: str) -> bytes:
        key = certificates.new_key()
        # The key before the certificate: the next start completes a key without a certificate, but not the reverse.
        self._write(name, key)
        return key

    def _now(self) -> datetime:
        return self._clock.now()

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _read(self, name: str) -> bytes | None:
        return private_files.read(self._path(name))

    def _write(self, name: str, content: bytes) -> None:
        private_files.write(self._path(name), content)

    def _damaged(self, name: str, reason: str) -> BadConfiguration:
        return BadConfiguration(
            f"{name} in {self._folder} cannot be used: {reason}; restore that folder from a backup, or remove it to make a "
            "new authority (kubeconfigs written before stop working)"
        )
