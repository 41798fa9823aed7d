"""The way to a Mac over SSH: dialling, host keys, credentials, and the connection that does what steps ask for.

The SSH library is imported when something is dialled, not before: it costs half a second. Nothing here speaks shell; that is
`host.rendering`.
"""

from __future__ import annotations

from bramley.host.ssh.connection import SshConnection, open  # noqa: A004 - it is read as ssh.open
from bramley.host.ssh.host_keys import HostKey, HostKeys, Pin, TrustAgain
from bramley.host.ssh.known_hosts import KnownHosts
from bramley.host.ssh.target import PATIENCE, Credentials, Target

__all__ = [
    "PATIENCE",
    "Credentials",
    "HostKey",
    "HostKeys",
    "KnownHosts",
    "Pin",
    "SshConnection",
    "Target",
    "TrustAgain",
    "open",
]
