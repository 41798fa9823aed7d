"""Sudo without a password: the one step that is given it, so that no other needs any.

The password is asked of the directory first, at its prompt: sudo would try a wrong one several times, and too many lock the account.
Without a password nothing is tried at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import kcpassword, login
from bramley.host.commands import ROOT, Command, Find, Look, LookAt, Probe, Write
from bramley.host.facts import Facts, Found

TRIED = Look(("true",), as_root=True)
_MODE = 0o440
_ADMINISTRATORS = "admin"


@dataclass(frozen=True, slots=True)
class Sudo:
    """Let the user run everything as root without being asked."""

    name: ClassVar[str] = "sudo"
    title: ClassVar[str] = "sudo without a password"

    user: str
    password: Secret | None = None

    def __post_init__(self) -> None:
        if self.password:
            # What cannot be a password is refused here: even one try of it would count as a wrong one.
            kcpassword.encode(self.password)

    def wanted(self) -> None:
        """Stamp nothing: without it no step could be applied at all."""

    def looks(self) -> list[Probe]:
        """Ask whether sudo works, for the file that lets it, and whether the user may use it at all."""
        return [TRIED, self._found, self._content, self._groups]

    def refuse(self, seen: Facts) -> None:
        """Refuse a Mac whose sudo asks for a password that was not given, or that does not let this user in."""
        if _works(seen):
            return
        if not self.password:
            raise UnsupportedHost(
                f"sudo asks {self.user} for a password, and none was given; give it, or set the Mac up once with `bramley host prepare`"
            )
        if _ADMINISTRATORS not in seen.said(self._groups).text.split():
            raise UnsupportedHost(
                f"{self.user} is no administrator and may not use sudo; make it one with "
                f"`dseditgroup -o edit -a {self.user} -t user {_ADMINISTRATORS}` as an administrator"
            )

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Write the rule, with the password if sudo still asks for one."""
        works = _works(seen)
        if works and self._is_right(seen):
            return
        if not works and self.password:
            yield login.check_password(self.user, self.password)
        yield Write(
            path=self._found.path,
            content=rule(self.user),
            purpose=f"let {self.user} use sudo without a password",
            mode=_MODE,
            check=("visudo", "-cf", "{}"),
            before=seen.file(self._content),
            sudo_password=None if works else self.password,
        )

    def confirm(self, seen: Facts) -> None:
        """Tell that the rule does not count."""
        if not _works(seen):
            raise NotConverged(
                f"{self._found.path} is there and sudo still asks for a password; look whether /etc/sudoers includes "
                "/etc/sudoers.d and whether a later rule takes it back"
            )

    def _is_right(self, seen: Facts) -> bool:
        return _is_closed(seen.found(self._found)) and seen.file(self._content) == rule(self.user)

    @property
    def _found(self) -> Find:
        return Find(host.sudoers(self.user))

    @property
    def _content(self) -> LookAt:
        return file(self.user)

    @property
    def _groups(self) -> Look:
        return Look(("id", "-Gn", self.user))


def rule(user: str) -> bytes:
    """Return what lets a user run everything as root without being asked."""
    return f"{user} ALL=(ALL) NOPASSWD: ALL\n".encode()


def file(user: str) -> LookAt:
    """Ask for the file that holds the rule of a user."""
    return LookAt(host.sudoers(user), as_root=True)


def _works(seen: Facts) -> bool:
    return seen.said(TRIED).code == 0


def _is_closed(found: Found | None) -> bool:
    return found is not None and found.mode == _MODE and found.owner == ROOT
