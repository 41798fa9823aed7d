"""SSH public keys in the user's authorized_keys; foreign lines stay byte for byte.

A key that exists already, with any options and comment, is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import Cause, InvalidSpec, UnsupportedHost
from bramley.host import grammar
from bramley.host.commands import Command, Folder, Probe, ReadFile, Stat, Write
from bramley.host.facts import FILE, FOLDER, Facts
from bramley.host.step import Step

_KINDS = r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
_KEY = re.compile(rf"{_KINDS}[ \t]+(AAAA[A-Za-z0-9+/]{{16,}}={{0,3}})(?=[ \t]|$)")
_MAX_LINE_LENGTH = 16 * 1024
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


@dataclass(frozen=True, slots=True)
class SshKeys(Step):
    """Authorize these keys to log in as the user."""

    name: ClassVar[str] = "ssh-keys"
    title: ClassVar[str] = "SSH keys"

    user: str
    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        causes = tuple(
            # The line is not shown: it may be a private key that was given by mistake.
            Cause(
                f"public_keys[{index}]",
                grammar.INVALID,
                f"public_keys[{index}] is not a valid line of authorized_keys",
            )
            for index, line in enumerate(self.lines)
            if not _is_line(line)
        )
        if causes:
            raise InvalidSpec("; ".join(cause.message for cause in causes), causes=causes)

    def probes(self) -> list[Probe]:
        """Probe the file, and its owner and mode."""
        return [Stat(self._folder), Stat(self._path), ReadFile(self._path)]

    def check_supported(self, facts: Facts) -> None:
        """Refuse a file whose content cannot be preserved: a link, or a file that cannot be read completely."""
        stat, content = facts.stat(Stat(self._path)), facts.file(ReadFile(self._path))
        if stat is not None and stat.kind != FILE:
            raise UnsupportedHost(
                f"{self._path} is a {stat.kind}, not a file; replace it by a file"
            )
        # A file that the user may not read has no content here, and would be lost.
        if stat is not None and stat.size > len(content or b""):
            raise UnsupportedHost(
                f"{self._path} has {stat.size} bytes and cannot be read completely; make it smaller"
            )

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Add missing keys, and restrict the file and its folder to the user."""
        if not self.lines:
            return
        folder, stat = facts.stat(Stat(self._folder)), facts.stat(Stat(self._path))
        if folder is None or (folder.kind, folder.mode, folder.owner) != (
            FOLDER,
            _FOLDER_MODE,
            self._owner,
        ):
            yield Folder(
                path=self._folder,
                purpose="restrict the folder of SSH keys to the user",
                mode=_FOLDER_MODE,
                owner=self._owner,
            )
        before = facts.file(ReadFile(self._path)) or b""
        after = with_lines(before, self.lines)
        is_private = stat is not None and (stat.mode, stat.owner) == (_FILE_MODE, self._owner)
        if after != before or not is_private:
            yield Write(
                path=self._path,
                content=after,
                purpose="authorize our SSH keys",
                mode=_FILE_MODE,
                owner=self._owner,
                before=before,
            )

    @property
    def _owner(self) -> str:
        return f"{self.user}:staff"

    @property
    def _folder(self) -> str:
        return f"{host.home(self.user)}/.ssh"

    @property
    def _path(self) -> str:
        return f"{self._folder}/authorized_keys"


def with_lines(content: bytes, lines: tuple[str, ...]) -> bytes:
    """Return the file with each missing key on a line at the end."""
    keys = {key for line in content.decode("utf-8", "replace").splitlines() if (key := _key(line))}
    added: list[str] = []
    for line in lines:
        if (key := _key(line)) not in keys:
            keys.add(key)
            added.append(f"{line.strip()}\n")
    lacks_newline = bool(added and content) and not content.endswith(b"\n")
    return content + (b"\n" if lacks_newline else b"") + "".join(added).encode()


def _key(line: str) -> str:
    """Return the key of a line, without its kind, options and comment; empty if it has none."""
    match = None if line.lstrip().startswith("#") else _KEY.search(line)
    return match[1] if match else ""


def _is_line(line: str) -> bool:
    return line.isprintable() and len(line) <= _MAX_LINE_LENGTH and bool(_key(line))
