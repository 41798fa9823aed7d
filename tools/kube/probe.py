"""Health requests to the control plane over TLS, for its start; tests use Bramley's client instead."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

TIMEOUT_SECONDS = 10.0


def admin_context(pki: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts the instance and shows the admin's certificate."""
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


def serving_only_context() -> ssl.SSLContext:
    """Return a TLS context for the health ports of servers that sign their own certificate at start."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def get(port: int, path: str, context: ssl.SSLContext) -> tuple[int, bytes]:
    """Request a path from a loopback port; status 0 means that there was no answer."""
    patience = TIMEOUT_SECONDS
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=patience, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
