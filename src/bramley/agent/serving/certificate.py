"""The certificate that the agent serves with, when none is given: self-signed, made by the system's openssl, renewed in time.

Nobody is asked to trust it: a kube-apiserver without `--kubelet-certificate-authority` does not look at it, and gives away no
secret of its own, since it proves itself by a client certificate. Key and certificate are private files of the state
folder. What we need to know again later stands above the certificate as text, which every reader of PEM skips.
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bramley.agent import atomic_file
from bramley.agent.programs import ProgramMissing, Programs, within
from bramley.api.names import agent
from bramley.base import errors, log
from bramley.base.clock import Clock

logger = log.get(__name__)

LIFETIME = timedelta(days=365)
OPENSSL = "openssl"
_WITHIN = timedelta(seconds=30)
_HOSTS, _RENEWAL = "hosts: ", "renewal: "
# Works with the OpenSSL of Linux and with the LibreSSL of macOS alike; the latter knows fewer flags.
_REQUEST = """[req]
distinguished_name = name
x509_extensions = more
prompt = no
[name]
O = {agent}
CN = {node}
[more]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = {hosts}
"""


class NotMade(errors.Unavailable):
    """The system's openssl makes no certificate; this says nothing about what was given."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """Keeps a certificate for these hosts in a folder."""

    folder: Path
    hosts: tuple[str, ...]
    programs: Programs
    clock: Clock
    lifetime: timedelta = LIFETIME

    @property
    def pair(self) -> Pair:
        """Return where certificate and key are."""
        return Pair(self.folder / "serving.crt", self.folder / "serving.key")

    async def ensure(self) -> bool:
        """Make a certificate if there is none that will do; tell whether one was made."""
        why = self._problem()
        if not why:
            return False
        logger.info("Making a serving certificate", reason=why)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = await self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout")
        now = self.clock.now()
        made = await self._signed(key)
        told = f"{_HOSTS}{','.join(self.hosts)}\n{_RENEWAL}{_renewal(now, self.lifetime)}\n"
        # Between the two a crash leaves a pair that does not match; it is found out by its key and made anew.
        atomic_file.replace(self.pair.key, key.encode())
        atomic_file.replace(self.pair.certificate, (told + made).encode())
        return True

    def drop(self) -> None:
        """Remove a pair that turned out to be unusable."""
        for path in (self.pair.certificate, self.pair.key):
            path.unlink(missing_ok=True)

    def _problem(self) -> str:
        try:
            text = self.pair.certificate.read_text()
            is_private = self.pair.key.stat().st_mode & 0o077 == 0
        except (OSError, UnicodeDecodeError):
            return "there is none"
        if not is_private:
            return "others can read its key"
        if _told(text, _HOSTS) != ",".join(self.hosts):
            return "it names other hosts"
        is_due = _told(text, _RENEWAL) <= self.clock.now().isoformat()
        return "it ends soon" if is_due else ""

    async def _signed(self, key: str) -> str:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            private, wanted = Path(folder) / "key", Path(folder) / "request"
            atomic_file.replace(private, key.encode(), durable=False)
            atomic_file.replace(wanted, self._request().encode(), durable=False)
            days = str(max(1, self.lifetime.days))
            asked = ("req", "-new", "-x509", "-sha256", "-days", days)
            return await self._openssl(*asked, "-key", str(private), "-config", str(wanted))

    def _request(self) -> str:
        node = self.hosts[0] if self.hosts else agent.NAME
        names = ",".join(_alternative(host) for host in self.hosts or (agent.NAME,))
        # A common name has room for 64 characters only.
        return _REQUEST.format(agent=agent.NAME, node=node[:64], hosts=names)

    async def _openssl(self, *arguments: str) -> str:
        try:
            done = await within(_WITHIN, self.programs, (OPENSSL, *arguments))
        except ProgramMissing as error:
            raise NotMade(f"{error}; give a certificate with --tls-cert-file") from error
        if done.code or "-----BEGIN" not in done.stdout:
            raise NotMade(
                f"{OPENSSL} {arguments[0]} made no certificate ({done.stderr.strip()[-200:]}); "
                "give one with --tls-cert-file and --tls-key-file"
            )
        return done.stdout[done.stdout.index("-----BEGIN") :]


def _renewal(now: datetime, lifetime: timedelta) -> str:
    return (now + lifetime * 2 / 3).isoformat()


def _told(text: str, word: str) -> str:
    lines: Iterable[str] = text.splitlines()
    return next((line.removeprefix(word) for line in lines if line.startswith(word)), "")


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
