"""Passwordless sudo: the only step that uses the password for sudo, so that no other step needs one.

The password is checked with the directory service first, once: sudo would try a wrong one several times, and too many attempts lock
the account. Without a password nothing is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import kcpassword, loginwindow
from bramley.host.commands import ROOT, Command, Probe, ReadFile, RunProbe, Stat, Write
from bramley.host.facts import Facts, FileStat
from bramley.host.step import Step

SUDO_PROBE = RunProbe(("true",), as_root=True)
_MODE = 0o440
_ADMINISTRATORS = "admin"


@dataclass(frozen=True, slots=True)
class Sudo(Step):
    """Allow the user to run all commands as root without a password."""

    name: ClassVar[str] = "sudo"
    title: ClassVar[str] = "sudo without a password"

    user: str
    password: Secret | None = None

    def __post_init__(self) -> None:
        if self.password:
            # A string that cannot be a password is refused here: even one attempt would count as a wrong one.
            kcpassword.encode(self.password)

    def probes(self) -> list[Probe]:
        """Probe whether sudo works, the file with the rule, and the groups of the user."""
        return [SUDO_PROBE, self._stat, self._content, self._groups]

    def check_supported(self, facts: Facts) -> None:
        """Refuse a Mac whose sudo needs a password that was not given, or on which the user is not an administrator."""
        if _works(facts):
            return
        if not self.password:
            raise UnsupportedHost(
                f"sudo requires a password of {self.user}, and none was given; provide it, or set the Mac up once with `bramley host prepare`"
            )
        if _ADMINISTRATORS not in facts.result(self._groups).text.split():
            raise UnsupportedHost(
                f"{self.user} is not an administrator and may not use sudo; make it one with "
                f"`dseditgroup -o edit -a {self.user} -t user {_ADMINISTRATORS}` as an administrator"
            )

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Write the rule, with the password if sudo still requires one."""
        works = _works(facts)
        if works and self._is_up_to_date(facts):
            return
        if not works and self.password:
            yield loginwindow.check_password(self.user, self.password)
        yield Write(
            path=self._stat.path,
            content=rule(self.user),
            purpose=f"allow {self.user} to use sudo without a password",
            mode=_MODE,
            check=("visudo", "-cf", "{}"),
            before=facts.file(self._content),
            sudo_password=None if works else self.password,
        )

    def verify(self, facts: Facts) -> None:
        """Report a rule that has no effect."""
        if not _works(facts):
            raise NotConverged(
                f"{self._stat.path} exists and sudo still requires a password; check whether /etc/sudoers includes "
                "/etc/sudoers.d and whether a later rule overrides it"
            )

    def _is_up_to_date(self, facts: Facts) -> bool:
        return _is_private(facts.stat(self._stat)) and facts.file(self._content) == rule(self.user)

    @property
    def _stat(self) -> Stat:
        return Stat(host.sudoers(self.user))

    @property
    def _content(self) -> ReadFile:
        return rule_file(self.user)

    @property
    def _groups(self) -> RunProbe:
        return RunProbe(("id", "-Gn", self.user))


def rule(user: str) -> bytes:
    """Return the sudo rule of a user."""
    return f"{user} ALL=(ALL) NOPASSWD: ALL\n".encode()


def rule_file(user: str) -> ReadFile:
    """Return the probe of the file with the rule of a user."""
    return ReadFile(host.sudoers(user), as_root=True)


def _works(facts: Facts) -> bool:
    return facts.result(SUDO_PROBE).code == 0


def _is_private(stat: FileStat | None) -> bool:
    return stat is not None and stat.mode == _MODE and stat.owner == ROOT
