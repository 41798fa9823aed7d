"""TLS of the embedded API: an authority made on the first start, a serving certificate, and their renewal in time.

The authority keeps its key when its certificate is renewed, so kubeconfigs written before stay valid until the old
certificate ends. The serving certificate is renewed after two thirds of its life, in the running server: new connections
see the new one, open ones go on. A damaged authority is an error, since making a new one would lock every client out; a
damaged serving certificate is simply replaced.
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
_LOOKED_AT = "looked-at.json"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})


class Settings(msgspec.Struct, frozen=True):
    """How long certificates live, and how often the running server looks at their dates."""

    authority_lifetime: timedelta = timedelta(days=3650)
    serving_lifetime: timedelta = timedelta(days=365)
    look_every: timedelta = timedelta(hours=6)


class Identity(msgspec.Struct, frozen=True):
    """A client certificate and its key, both PEM."""

    certificate: bytes
    key: Secret


class _LookedAt(msgspec.Struct, frozen=True):
    """Which files were found good, for which hosts, and for how long they need not be looked at."""

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
        self._hosts = LOOPBACK | (frozenset(hosts) - _EVERYWHERE)
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._context: ssl.SSLContext | None = None

    @property
    def authority(self) -> bytes:
        """Return the authority's certificate, which clients are to trust."""
        return private_files.read(self._path("ca.crt")) or b""

    def ensure(self) -> bool:
        """Make or renew what is missing, due or unusable; tell whether anything changed."""
        if self._is_known_good():
            return False
        renewed = self._ensure_authority()
        changed = self._ensure_serving() or renewed
        self._remember()
        return changed

    def context(self) -> ssl.SSLContext:
        """Return the server's TLS context; renewals go into this one object."""
        if self._context is None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._context.set_alpn_protocols(["http/1.1"])
            # Asked for, not insisted on: most clients have a token instead.
            self._context.verify_mode = ssl.CERT_OPTIONAL
            self._load()
        return self._context

    def issue(self, name: str, groups: Iterable[str] = (), *, lifetime: timedelta) -> Identity:
        """Make a client certificate: whoever holds it and its key is that user, in these groups, until it ends."""
        key = certificates.new_key()
        signer = self._read("ca.crt") or b"", self._read("ca.key") or b""
        made = certificates.client(
            key, (name, tuple(groups)), signer=signer, now=self._now(), lifetime=lifetime
        )
        return Identity(made, Secret(key.decode()))

    async def keep_fresh(self, renewed: Callable[[], None]) -> None:
        """Renew in time for as long as the server runs, and tell whoever hands out the authority's certificate."""
        while True:
            await asyncio.sleep(self._settings.look_every.total_seconds())
            try:
                if self.ensure():
                    self._load()
                    renewed()
            except BadConfiguration as error:
                # The certificate in use is good for a third of its life; the next look may find the disk mended.
                logger.error("Certificates cannot be renewed", reason=str(error))  # noqa: TRY400 - our logger

    def _is_known_good(self) -> bool:
        """Tell whether these very files were looked at before and are good still, without the heavy library for that."""
        try:
            known = msgspec.json.decode(self._read(_LOOKED_AT) or b"", type=_LookedAt)
        except msgspec.DecodeError:
            return False
        is_same = known.sha256 == self._digest() and known.hosts >= self._hosts
        return is_same and known.since <= self._now() < known.until

    def _remember(self) -> None:
        authority, serving = (
            self._facts("ca.crt", "ca.key"),
            self._facts("serving.crt", "serving.key"),
        )
        known = _LookedAt(
            sha256=self._digest(),
            hosts=serving.hosts,
            since=max(authority.since, serving.since),
            until=min(authority.renewal, serving.renewal),
        )
        # Not durable, unlike the files themselves: half of it, or none, only means to look again.
        private_files.write_soon(self._path(_LOOKED_AT), msgspec.json.encode(known))

    def _facts(self, certificate: str, key: str) -> Facts:
        return certificates.read(self._read(certificate) or b"", self._read(key) or b"")

    def _digest(self) -> str:
        whole = hashlib.sha256()
        for name in _FILES:
            whole.update(hashlib.sha256(self._read(name) or b"").digest())
        return whole.hexdigest()

    def _load(self) -> None:
        if self._context is not None:
            self._context.load_cert_chain(self._path("serving.crt"), self._path("serving.key"))
            # Clients prove themselves by certificates of our own authority and of nobody else.
            self._context.load_verify_locations(cadata=self.authority.decode())

    def _ensure_authority(self) -> bool:
        certificate, key = self._read("ca.crt"), self._read("ca.key")
        if certificate is not None and key is None:
            raise self._damaged("ca.key", "it is missing")
        if certificate is not None and key is not None:
            facts = self._authority_facts(certificate, key)
            if not facts.due(self._clock.now()):
                return False
        logger.info("Making the certificate authority", renewed=certificate is not None)
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
            made = certificates.authority(key, now=self._now(), lifetime=lifetime)
        except BadCertificate as error:
            raise self._damaged("ca.key", str(error)) from error
        self._write("ca.crt", made)

    def _ensure_serving(self) -> bool:
        reason = self._serving_problem()
        if not reason:
            return False
        logger.info("Making the serving certificate", reason=reason)
        signer = self._read("ca.crt") or b"", self._read("ca.key") or b""
        # A new key each time: a stolen one is worth a year at most.
        key = certificates.new_key()
        made = certificates.serving(
            key,
            self._hosts,
            signer=signer,
            now=self._now(),
            lifetime=self._settings.serving_lifetime,
        )
        self._write("serving.crt", made)
        self._write("serving.key", key)
        return True

    def _serving_problem(self) -> str:
        certificate, key = self._read("serving.crt"), self._read("serving.key")
        if certificate is None or key is None:
            return "there is none"
        try:
            facts = certificates.read(certificate, key, signer=self._read("ca.crt"))
        except BadCertificate as error:
            return str(error)
        if not (facts.key_matches and facts.signed_by_authority):
            return "it does not belong to its key or to the authority"
        if not facts.hosts >= self._hosts:
            return "it does not name the address that is listened on"
        return "it ends soon" if facts.due(self._clock.now()) else ""

    def _new_key(self, name: str) -> bytes:
        key = certificates.new_key()
        # The key comes first: a key without a certificate is completed by the next start, the reverse is lost.
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

    def _damaged(self, name: str, why: str) -> BadConfiguration:
        return BadConfiguration(
            f"{name} in {self._folder} cannot be used: {why}; restore that folder from a backup, or remove it to make a "
            "new authority (kubeconfigs written before stop working)"
        )
