"""The self-signed serving certificate, created by the system's openssl when none is configured, and renewed in time.

No client has to trust it: a kube-apiserver without `--kubelet-certificate-authority` does not verify it, and sends no secret,
because it authenticates by a client certificate. Key and certificate are private files of the state folder. Hosts and renewal
date are stored as text before the certificate, which PEM parsers skip.
"""

from __future__ import annotations

import ipaddress
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bramley.agent import atomic_file
from bramley.agent.programs import ProgramMissing, Programs, run_with_timeout
from bramley.api.names import agent
from bramley.base import errors, log
from bramley.base.clock import Clock

logger = log.get(__name__)

LIFETIME = timedelta(days=365)
OPENSSL = "openssl"
_OPENSSL_TIMEOUT = timedelta(seconds=30)
_HOSTS, _RENEWAL = "hosts: ", "renewal: "
# Works with the OpenSSL of Linux and the LibreSSL of macOS, which supports fewer flags.
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


class CertificateNotCreated(errors.Unavailable):
    """The system's openssl did not create a certificate."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A self-signed certificate for these hosts in a folder."""

    folder: Path
    hosts: tuple[str, ...]
    programs: Programs
    clock: Clock
    lifetime: timedelta = LIFETIME

    @property
    def pair(self) -> Pair:
        """Return the paths of certificate and key."""
        return Pair(self.folder / "serving.crt", self.folder / "serving.key")

    async def ensure(self) -> bool:
        """Create a certificate unless there is a usable one; return whether one was created."""
        reason = self._problem()
        if not reason:
            return False
        logger.info("Creating serving certificate", reason=reason)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = await self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout")
        now = self.clock.now()
        certificate = await self._sign(key)
        header = f"{_HOSTS}{','.join(self.hosts)}\n{_RENEWAL}{_renewal(now, self.lifetime)}\n"
        # A crash between the two leaves a pair that does not match; loading it fails, and then a new pair is created.
        atomic_file.replace(self.pair.key, key.encode())
        atomic_file.replace(self.pair.certificate, (header + certificate).encode())
        return True

    def delete(self) -> None:
        """Delete a pair that cannot be loaded."""
        for path in (self.pair.certificate, self.pair.key):
            path.unlink(missing_ok=True)

    def _problem(self) -> str:
        try:
            text = self.pair.certificate.read_text()
            is_private = self.pair.key.stat().st_mode & 0o077 == 0
        except (OSError, UnicodeDecodeError):
            return "there is none"
        if not is_private:
            return "its key is readable by other users"
        if _header_value(text, _HOSTS) != ",".join(self.hosts):
            return "it is for other hosts"
        is_due = _header_value(text, _RENEWAL) <= self.clock.now().isoformat()
        return "it expires soon" if is_due else ""

    async def _sign(self, key: str) -> str:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            private, config_path = Path(folder) / "key", Path(folder) / "request"
            atomic_file.replace(private, key.encode(), durable=False)
            atomic_file.replace(config_path, self._request().encode(), durable=False)
            days = str(max(1, self.lifetime.days))
            arguments = ("req", "-new", "-x509", "-sha256", "-days", days)
            return await self._openssl(
                *arguments, "-key", str(private), "-config", str(config_path)
            )

    def _request(self) -> str:
        node = self.hosts[0] if self.hosts else agent.NAME
        names = ",".join(_alternative_name(host) for host in self.hosts or (agent.NAME,))
        # A common name has at most 64 characters.
        return _REQUEST.format(agent=agent.NAME, node=node[:64], hosts=names)

    async def _openssl(self, *arguments: str) -> str:
        try:
            result = await run_with_timeout(_OPENSSL_TIMEOUT, self.programs, (OPENSSL, *arguments))
        except ProgramMissing as error:
            raise CertificateNotCreated(
                f"{error}; configure a certificate with --tls-cert-file"
            ) from error
        if result.code or "-----BEGIN" not in result.stdout:
            raise CertificateNotCreated(
                f"{OPENSSL} {arguments[0]} created no certificate ({result.stderr.strip()[-200:]}); "
                "configure one with --tls-cert-file and --tls-key-file"
            )
        return result.stdout[result.stdout.index("-----BEGIN") :]


def _renewal(now: datetime, lifetime: timedelta) -> str:
    return (now + lifetime * 2 / 3).isoformat()


def _header_value(text: str, key: str) -> str:
    lines = text.splitlines()
    return next((line.removeprefix(key) for line in lines if line.startswith(key)), "")


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
