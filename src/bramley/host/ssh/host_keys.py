"""Host keys of Macs: accepted at the first connection and required from then on.

A key is stored as soon as the server presents it, before the login, so the caller has it even if a later step fails. A changed key
ends the connection before anything is sent; after a reinstallation, `remove` allows a new key.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bramley.base.errors import BadConfiguration

if TYPE_CHECKING:
    import asyncssh

_FINGERPRINT = "SHA256:"
_SSH_PORT = 22
# The host names of a known-hosts entry, after its marker; hashed ones are left alone.
_PLAIN_HOSTS = re.compile(r"^(\s*(?:@\S+\s+)?)([^|#@\s]\S*)")


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host key: its algorithm, its fingerprint and, where known, the public key in base64."""

    algorithm: str
    fingerprint: str
    public: str = ""

    @classmethod
    def of(cls, key: asyncssh.SSHKey) -> HostKey:
        """Return a key of the SSH library."""
        public = base64.b64encode(key.public_data).decode()
        return cls(key.get_algorithm(), key.get_fingerprint(), public)

    def __str__(self) -> str:
        return f"{self.algorithm} {self.fingerprint}".strip()

    def is_same(self, other: HostKey) -> bool:
        """Return whether both are the same key; a pin may lack the algorithm."""
        return self.fingerprint == other.fingerprint


# No key has this fingerprint.
_NO_KEY = HostKey("", "(only a revoked key)")


class HostKeys(Protocol):
    """The known keys of hosts."""

    def keys_of(self, host: str, port: int) -> Sequence[HostKey]:
        """Return the keys that a host may present; none before the first connection."""
        ...

    def add(self, host: str, port: int, key: HostKey) -> None:
        """Store the key that a host presents at the first connection."""
        ...

    def remove(self, host: str, port: int) -> None:
        """Accept any key at the next connection, as at the first one."""
        ...

    def advice(self, host: str, port: int) -> str:
        """Return how people remove the key, for the error of a changed key."""
        ...


@dataclass(slots=True)
class AcceptNewHostKey:
    """Allow a host to present a new key once; the known key is kept until the host presents one."""

    is_due: bool = True

    def remove_old_key(self, keys: HostKeys, host: str, port: int) -> None:
        """Remove the known key when the host presents a key for the first time."""
        if self.is_due:
            keys.remove(host, port)
        self.is_due = False


class Pin:
    """The key of one host, stored by the caller as text such as `ssh-ed25519 SHA256:…`, for example in a Secret.

    `text` is what to store; read it after a failure as well, since it is set from the first connection on.
    """

    def __init__(self, text: str = "", *, stored_in: str = "its storage") -> None:
        self._key = parse_pin(text)
        self._stored_in = stored_in

    @property
    def text(self) -> str:
        """Return the pin to store; empty before the first connection."""
        return str(self._key) if self._key else ""

    def keys_of(self, host: str, port: int) -> Sequence[HostKey]:  # noqa: ARG002 - it is of one host
        """Return the pinned key."""
        return (self._key,) if self._key else ()

    def add(self, host: str, port: int, key: HostKey) -> None:  # noqa: ARG002 - as above
        """Pin a key."""
        self._key = key

    def remove(self, host: str, port: int) -> None:  # noqa: ARG002 - as above
        """Remove the pin."""
        self._key = None

    def advice(self, host: str, port: int) -> str:  # noqa: ARG002 - as above
        """Return how people remove the pin."""
        return f"remove the old key from {self._stored_in}"


def parse_pin(text: str) -> HostKey | None:
    """Return the key of a pin: `SHA256:…`, optionally after its algorithm; None for an empty pin."""
    words = text.split()
    if not words:
        return None
    if len(words) > 2 or not words[-1].startswith(_FINGERPRINT):
        raise BadConfiguration(
            "the pinned host key is not of the form `ssh-ed25519 SHA256:…`; "
            "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the Mac shows it"
        )
    return HostKey(words[0] if len(words) == 2 else "", words[-1])


class KnownHosts:
    """The keys in an OpenSSH known-hosts file.

    The SSH library parses and matches entries; it cannot write them, so that is done here: plain entries, atomically, readable by the
    owner only. All other lines stay byte for byte. A revoked key is never accepted.
    """

    def __init__(self, path: Path, *, advice: str = "") -> None:
        self._path = path
        self._advice = advice

    def keys_of(self, host: str, port: int) -> Sequence[HostKey]:
        """Return the keys in the file for a host, without revoked ones."""
        keys, revoked = _match(self._lines(), _name(host, port))
        usable = tuple(key for key in keys if key not in revoked)
        # A host with only a revoked key is not a first connection: that key must never be accepted.
        return (_NO_KEY,) if revoked and not usable else usable

    def add(self, host: str, port: int, key: HostKey) -> None:
        """Add a key for a host."""
        line = f"{_name(host, port)} {key.algorithm} {key.public}\n"
        with self._locked():
            lines = self._lines()
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += "\n"
            self._write([*lines, line])

    def remove(self, host: str, port: int) -> None:
        """Remove the keys of a host; entries with patterns and revoked keys stay."""
        name = _name(host, port)
        with self._locked():
            lines = self._lines()
            remaining = [line for old in lines if (line := _without_host(old, name))]
            if remaining != lines:
                self._write(remaining)

    def advice(self, host: str, port: int) -> str:
        """Return how people remove the keys of a host."""
        name, path = shlex.quote(_name(host, port)), shlex.quote(str(self._path))
        return self._advice or f"run: ssh-keygen -R {name} -f {path}"

    def _lines(self) -> list[str]:
        try:
            return self._path.read_text("utf-8", "surrogateescape").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable("read", error) from error

    def _write(self, lines: Sequence[str]) -> None:
        temporary = self._path.with_name(f".{self._path.name}.new")
        content = "".join(lines).encode("utf-8", "surrogateescape")
        try:
            temporary.unlink(missing_ok=True)
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(content)
                out.flush()
                # Before the rename: after a crash the file must not be empty, which would accept any key.
                os.fsync(out.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise self._unusable("written", error) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other processes between reading and writing."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The folder is locked, so that no lock file is left beside the files of ssh.
            lock = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable("locked", error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _unusable(self, action: str, error: OSError) -> BadConfiguration:
        return BadConfiguration(
            f"the known-hosts file {self._path} cannot be {action}: {error.strerror}"
        )


def _name(host: str, port: int) -> str:
    return host.lower() if port == _SSH_PORT else f"[{host.lower()}]:{port}"


def _match(lines: Iterable[str], name: str) -> tuple[list[HostKey], list[HostKey]]:
    """Return the trusted and the revoked keys of a host."""
    import asyncssh

    entries = asyncssh.import_known_hosts("")
    for line in lines:
        # Line by line: the library refuses a whole file for one invalid line, while ssh skips the line.
        with contextlib.suppress(ValueError):
            # In lower case: the library compares plain names exactly, while ssh ignores the case.
            entries.load(_PLAIN_HOSTS.sub(lambda match: match[1] + match[2].lower(), line))
    # The name includes the port: given apart, the library would fall back to the entry without a port.
    keys, _, revoked, *_ = entries.match(name, "", None)
    return [HostKey.of(key) for key in keys], [HostKey.of(key) for key in revoked]


def _without_host(line: str, name: str) -> str:
    """Return the line without this host; empty if no host remains."""
    trusted, _ = _match([line], name)
    match = _PLAIN_HOSTS.match(line)
    if not trusted or match is None:
        # A hashed entry has exactly one host.
        return "" if trusted else line
    hosts = match[2].split(",")
    remaining = [host for host in hosts if host.lower() != name]
    return line.replace(match[2], ",".join(remaining), 1) if remaining else ""
