"""The SSH options of `bramley host`: the target, its credentials and its host key."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from bramley.app.config_files import file_errors
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import grammar, ssh

_TARGET = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:@\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
)
_MAX_PORT = 65535
_MAX_KEY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """How to connect to a Mac."""

    # user@host:port
    target: str
    user: str
    known_hosts: Path
    identities: tuple[Path, ...] = ()
    agent: str = ""
    # False for keys found at their default places.
    are_explicit: bool = True
    password: Secret | None = None
    jump: str = ""
    # For a Mac that was reinstalled.
    accept_new_host_key: bool = False
    connect_timeout: timedelta = timedelta(seconds=30)

    @property
    def login_user(self) -> str:
        """Return the user of the target, or the default one."""
        return parse_target(self.target, user=self.user)[0]

    def build_target(self) -> ssh.Target:
        """Return the target to connect to; refuses options without any credentials."""
        user, host, port = parse_target(self.target, user=self.user)
        private_keys = self.private_keys()
        if not (private_keys or self.agent or self.password):
            raise BadConfiguration(
                f"{self.target}: no credentials; name a private key with --identity, or give the password with "
                "--ask-password or --password-file"
            )
        credentials = ssh.Credentials(
            private_keys=private_keys,
            agent=self.agent,
            password=self.password,
            are_explicit=self.are_explicit,
        )
        return ssh.Target(
            host=host,
            user=user,
            port=port,
            credentials=credentials,
            host_keys=ssh.KnownHosts(
                self.known_hosts, advice="run this once with --accept-new-host-key"
            ),
            accept_new_host_key=ssh.AcceptNewHostKey() if self.accept_new_host_key else None,
            jump=self._jump_target(credentials) if self.jump else None,
        )

    def _jump_target(self, credentials: ssh.Credentials) -> ssh.Target:
        user, host, port = parse_target(self.jump, user=self.user, field="--jump")
        if not (credentials.private_keys or credentials.agent):
            # The password is that of the Mac and must not be sent to another host.
            raise BadConfiguration("--jump needs a key: give one with --identity, or an SSH agent")
        return ssh.Target(
            host=host,
            user=user,
            port=port,
            credentials=replace(credentials, password=None),
            host_keys=ssh.KnownHosts(self.known_hosts),
        )

    def private_keys(self) -> tuple[Secret, ...]:
        """Return the private keys to log in with; unreadable ones are skipped unless they were given explicitly."""
        keys = []
        for path in self.identities:
            try:
                keys.append(read_key(path))
            except (BadConfiguration, OSError):
                if self.are_explicit:
                    raise
        return tuple(keys)


def parse_target(text: str, *, user: str, field: str = "TARGET") -> tuple[str, str, int]:
    """Return user, host and port of user@host:port."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise BadConfiguration(
            f"{field} {text[:80]!r} is not of the form user@host or user@host:port"
        )
    # The final dot of an absolute name is dropped, so that a Mac has one host key entry with and without it.
    host = match["host"].strip("[]").removesuffix(".")
    port = int(match["port"] or ssh.target.DEFAULT_PORT)
    login = match["user"] or user
    grammar.require(
        field,
        grammar.USER_NAME.check("user", login),
        grammar.host_name("host", host),
        grammar.count("port", port, maximum=_MAX_PORT),
    )
    return login, _canonical(host), port


def _canonical(host: str) -> str:
    """Return the canonical form of an address or name, so that a Mac has one host key entry."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def read_key(path: Path) -> Secret:
    """Return the private key in a file of --identity."""
    with file_errors("--identity", path), path.open("rb") as file:
        content = file.read(_MAX_KEY_BYTES + 1)
    if len(content) > _MAX_KEY_BYTES:
        raise BadConfiguration(f"{path} is too large for a private key")
    try:
        return Secret(content.decode())
    except UnicodeDecodeError:
        # Without the cause, which contains the key.
        raise BadConfiguration(f"{path} is not a private key in OpenSSH or PEM format") from None
