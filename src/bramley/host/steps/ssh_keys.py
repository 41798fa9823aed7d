"""The keys that may log in: lines in the user's authorized_keys, beside whatever others have put there.

A key that is there already, whatever its options and comment, is left as it is. Foreign bytes stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import Cause, InvalidSpec, UnsupportedHost
from bramley.host import grammar
from bramley.host.commands import Command, Find, Folder, LookAt, Probe, Write
from bramley.host.facts import FILE, FOLDER, Facts

_KINDS = r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
_KEY = re.compile(rf"{_KINDS}[ \t]+(AAAA[A-Za-z0-9+/]{{16,}}={{0,3}})(?=[ \t]|$)")
_LONGEST_LINE = 16 * 1024
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


@dataclass(frozen=True, slots=True)
class SshKeys:
    """Let these keys log in as the user."""

    name: ClassVar[str] = "ssh-keys"
    title: ClassVar[str] = "SSH keys"

    user: str
    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        causes = tuple(
            # The line is not shown: it may be a private key that was given by mistake.
            Cause(
                f"public_keys[{at}]",
                grammar.INVALID,
                f"public_keys[{at}] is no line of authorized_keys",
            )
            for at, line in enumerate(self.lines)
            if not _is_line(line)
        )
        if causes:
            raise InvalidSpec("; ".join(cause.message for cause in causes), causes=causes)

    def wanted(self) -> None:
        """Stamp nothing: keys are seen by looking."""

    def looks(self) -> list[Probe]:
        """Ask for the file and who may read it."""
        return [Find(self._folder), Find(self._path), LookAt(self._path)]

    def refuse(self, seen: Facts) -> None:
        """Refuse a file that cannot be kept as it is: a link, or one that is longer than what is read of it."""
        found, content = seen.found(Find(self._path)), seen.file(LookAt(self._path))
        if found is not None and found.kind != FILE:
            raise UnsupportedHost(
                f"{self._path} is a {found.kind} and no file; put a file in its place"
            )
        # One that the user may not read is there all the same, and would be lost.
        if found is not None and found.size > len(content or b""):
            raise UnsupportedHost(
                f"{self._path} has {found.size} bytes, and not all of it can be read; make it smaller"
            )

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Add the keys that are missing, and close the file and its folder to others."""
        if not self.lines:
            return
        folder, found = seen.found(Find(self._folder)), seen.found(Find(self._path))
        if folder is None or (folder.kind, folder.mode, folder.owner) != (
            FOLDER,
            _FOLDER_MODE,
            self._owner,
        ):
            yield Folder(
                path=self._folder,
                purpose="close the folder of SSH keys to others",
                mode=_FOLDER_MODE,
                owner=self._owner,
            )
        before = seen.file(LookAt(self._path)) or b""
        after = with_lines(before, self.lines)
        is_closed = found is not None and (found.mode, found.owner) == (_FILE_MODE, self._owner)
        if after != before or not is_closed:
            yield Write(
                path=self._path,
                content=after,
                purpose="let our SSH keys in",
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
    """Return the file with each key that it does not have yet on a line of its own at the end."""
    known = {key for line in content.decode("utf-8", "replace").splitlines() if (key := _key(line))}
    added: list[str] = []
    for line in lines:
        if (key := _key(line)) not in known:
            known.add(key)
            added.append(f"{line.strip()}\n")
    parted = content if not added or not content or content.endswith(b"\n") else content + b"\n"
    return parted + "".join(added).encode()


def _key(line: str) -> str:
    """Return the key of a line, without its kind, options and comment; empty if it has none."""
    found = None if line.lstrip().startswith("#") else _KEY.search(line)
    return found[1] if found else ""


def _is_line(line: str) -> bool:
    return line.isprintable() and len(line) <= _LONGEST_LINE and bool(_key(line))
