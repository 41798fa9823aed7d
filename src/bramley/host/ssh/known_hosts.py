"""Host keys in a file of OpenSSH's known-hosts format, for use by hand.

Read are plain, hashed and wildcard entries, also those that `ssh` wrote; a revoked key is never trusted. Written are plain
entries, at once by a rename and readable by their owner only; lines of others stay as they are, byte by byte.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bramley.base.errors import BadConfiguration
from bramley.host.ssh.host_keys import HostKey

_HASHED = "|1|"
_REVOKED = "@revoked"
_PORT_OF_SSH = 22
# No key has this fingerprint.
_NO_KEY = HostKey("", "(only a revoked key)")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line that names hosts and a key."""

    marker: str
    hosts: str
    algorithm: str
    public: str

    @property
    def key(self) -> HostKey:
        return HostKey(self.algorithm, fingerprint(self.public), self.public)


class KnownHosts:
    """The keys that a known-hosts file holds."""

    def __init__(self, path: Path, *, advice: str = "") -> None:
        self._path = path
        self._advice = advice

    def known(self, host: str, port: int) -> Sequence[HostKey]:
        """Return the keys that the file has for a host, without revoked ones."""
        name = _name(host, port)
        entries = [entry for line in self._lines() if (entry := _parse(line))]
        matching = [entry for entry in entries if _matches(entry.hosts, name)]
        revoked = {entry.public for entry in matching if entry.marker == _REVOKED}
        plain = [entry for entry in matching if not entry.marker and entry.public not in revoked]
        if revoked and not plain:
            # Not a first contact: somebody said that this host must not be trusted with that key.
            return (_NO_KEY,)
        return tuple(entry.key for entry in plain)

    def learn(self, host: str, port: int, key: HostKey) -> None:
        """Add a key for a host."""
        line = f"{_name(host, port)} {key.algorithm} {key.public}\n"
        with self._locked():
            lines = self._lines()
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += "\n"
            self._write([*lines, line])

    def forget(self, host: str, port: int) -> None:
        """Drop the keys of a host; entries for patterns and revoked keys stay."""
        name = _name(host, port)
        with self._locked():
            lines = self._lines()
            left = [kept for line in lines if (kept := _without(line, name)) is not None]
            if left != lines:
                self._write(left)

    def advice(self, host: str, port: int) -> str:
        """Return what drops the keys of a host: a command, if whoever keeps them has no way of its own."""
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
                os.fsync(out.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise self._unusable("written", error) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing between our reading and our writing."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The folder itself: a file for it would lie about among those of ssh.
            lock = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable("locked", error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _unusable(self, done: str, error: OSError) -> BadConfiguration:
        return BadConfiguration(
            f"the known-hosts file {self._path} cannot be {done}: {error.strerror}"
        )


def fingerprint(public: str) -> str:
    """Return the fingerprint of a public key in base64, as `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(base64.b64decode(public)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _name(host: str, port: int) -> str:
    return host.lower() if port == _PORT_OF_SSH else f"[{host.lower()}]:{port}"


def _parse(line: str) -> _Entry | None:
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return None
    try:
        base64.b64decode(words[2], validate=True)
    except ValueError:
        return None
    return _Entry(marker, words[0], words[1], words[2])


def _matches(hosts: str, name: str) -> bool:
    patterns = hosts.split(",")
    if any(_is_hit(pattern[1:], name) for pattern in patterns if pattern.startswith("!")):
        return False
    return any(_is_hit(pattern, name) for pattern in patterns if not pattern.startswith("!"))


def _is_hit(pattern: str, name: str) -> bool:
    if pattern.startswith(_HASHED):
        return _is_hash_of(pattern, name)
    # Brackets stand for themselves here: they surround a name that has a port.
    return fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _is_hash_of(pattern: str, name: str) -> bool:
    try:
        salt, hashed = (base64.b64decode(part) for part in pattern[len(_HASHED) :].split("|"))
    except ValueError:
        return False
    # The format's own choice of a hash; it hides names, and is no proof of anything.
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), hashed)


def _without(line: str, name: str) -> str | None:
    """Return the line without this host; None if nothing is left of it."""
    entry = _parse(line)
    if entry is None or entry.marker:
        return line
    hosts = entry.hosts.split(",")
    left = [each for each in hosts if not _names(each, name)]
    if left == hosts:
        return line
    return line.replace(entry.hosts, ",".join(left), 1) if left else None


def _names(pattern: str, name: str) -> bool:
    if pattern.startswith(_HASHED):
        return _is_hash_of(pattern, name)
    return pattern.lower() == name
