"""TLS contexts from a CA, a client certificate, and whether to verify the server.

OpenSSL reads a private key from a file only. A key given as data is written to a file in a private directory, which is
removed before the context is returned.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bramley.base import errors
from bramley.base.secret import Secret


@dataclass(frozen=True, slots=True)
class Trust:
    """The trusted authorities in PEM (default: the system's), and the expected name of the server."""

    authorities: str | None = None
    verify: bool = True
    server_name: str | None = None
    source: str = "the system's certificate authorities"


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate and its key in PEM, with their source for error messages."""

    certificate: str
    key: Secret
    source: str = "client certificate"


def context(trust: Trust, certificate: ClientCertificate | None = None) -> ssl.SSLContext:
    """Return a TLS context for connections to the server."""
    try:
        made = ssl.create_default_context(cadata=trust.authorities)
    except (ssl.SSLError, ValueError) as error:
        raise errors.BadConfiguration(
            f"{trust.source}: contains no valid certificate authority ({error}); give one in PEM"
        ) from error
    # Python 3.13 requires extensions that the authorities of many clusters lack, and that Kubernetes does not require.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not trust.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load(made, certificate)
    return made


def _load(made: ssl.SSLContext, certificate: ClientCertificate) -> None:
    with tempfile.TemporaryDirectory(prefix="bramley-") as folder:
        chain = _private_file(Path(folder) / "chain.pem", certificate.certificate)
        key = _private_file(Path(folder) / "key.pem", certificate.key.reveal())
        try:
            # The empty password prevents OpenSSL from prompting at the terminal.
            made.load_cert_chain(chain, key, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise errors.BadConfiguration(
                f"{certificate.source}: the client certificate and its key do not work together "
                f"({_reason(error)}); both must be PEM, belong to each other and have no password"
            ) from error


def _private_file(path: Path, text: str) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return path


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or type(error).__name__
