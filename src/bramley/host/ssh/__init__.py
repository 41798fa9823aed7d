"""SSH connections to Macs: host keys, credentials, and the connection that executes the commands of steps.

The SSH library is imported at the first connection, because its import takes half a second. Shell is in `host.rendering`.
"""

from __future__ import annotations

from bramley.host.ssh.connection import SshConnection, open  # noqa: A004 - it is used as ssh.open
from bramley.host.ssh.host_keys import AcceptNewHostKey, HostKey, HostKeys, KnownHosts, Pin
from bramley.host.ssh.target import CONNECT_TIMEOUT, Credentials, Target

__all__ = [
    "CONNECT_TIMEOUT",
    "AcceptNewHostKey",
    "Credentials",
    "HostKey",
    "HostKeys",
    "KnownHosts",
    "Pin",
    "SshConnection",
    "Target",
    "open",
]
