"""Our side of a handshake: judges the host key that a server shows, before anybody logs in."""

from __future__ import annotations

import base64

import asyncssh

from bramley.base.errors import BramleyError, HostKeyChanged
from bramley.host.ssh.host_keys import HostKey
from bramley.host.ssh.target import Target


class Client(asyncssh.SSHClient):
    """Trusts the key that is known of a host, or the first one that it shows; `refused` says why a key was not trusted."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.refused: BramleyError | None = None

    def validate_host_public_key(
        self,
        host: str,  # noqa: ARG002 - whatever the name came to be, keys are kept by the target's own
        addr: str,  # noqa: ARG002 - as above
        port: int,  # noqa: ARG002 - as above
        key: asyncssh.SSHKey,
    ) -> bool:
        """Tell whether this is the host that we want."""
        public = base64.b64encode(key.public_data).decode()
        shown = HostKey(key.get_algorithm(), key.get_fingerprint(), public)
        try:
            require(self._target, shown)
        except BramleyError as error:
            # The library would take any error for one of its own; whoever dialled raises this one.
            self.refused = error
        return self.refused is None


def require(target: Target, shown: HostKey) -> None:
    """Learn the first key that a host shows; HostKeyChanged if it shows another one than before."""
    if target.trust_again is not None:
        target.trust_again.forget(target.host_keys, target.host, target.port)
    known = target.host_keys.known(target.host, target.port)
    if not known:
        target.host_keys.learn(target.host, target.port, shown)
    elif not any(shown.is_same(key) for key in known):
        raise _changed(target, shown, known[0])


def _changed(target: Target, shown: HostKey, known: HostKey) -> HostKeyChanged:
    return HostKeyChanged(
        f"{target.told}: this is not the host key that was pinned; nothing was sent. It shows {shown}, known is {known}. "
        "If this Mac was reinstalled, compare the key with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on its console, "
        f"then {target.host_keys.advice(target.host, target.port)} and connect again; if it was not, somebody may stand between"
    )
