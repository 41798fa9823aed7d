"""Automatic login: somebody must be logged in at the Mac itself, or no VM starts.

A password is checked before it is written, since nothing else would refuse a wrong one, and once loginwindow has tried it, macOS'
marker of a wrong one is looked for; so it is at every later look, too, because macOS may set it at any login. loginwindow is
restarted only if nobody is logged in and no VM runs. What is right is left alone, whatever password is given. A Mac that cannot have
it does not become a Node; one that is a Node already gets everything else all the same, the agent's updates above all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import kcpassword, login, vms
from bramley.host.commands import ROOT, Command, Probe, Run
from bramley.host.facts import Facts
from bramley.host.steps.preconditions import AGENT


@dataclass(frozen=True, slots=True)
class AutoLogin:
    """Keep the user logged in at the Mac."""

    name: ClassVar[str] = "auto-login"
    title: ClassVar[str] = "automatic login"

    user: str
    password: Secret | None = None

    def __post_init__(self) -> None:
        if self.password:
            kcpassword.encode(self.password)

    def wanted(self) -> None:
        """Stamp nothing: a stamp of a password would tell it."""

    def looks(self) -> list[Probe]:
        """Ask for the settings, the marker of a wrong password, the session, VMs, the agent, and whether the disk allows it."""
        return [*login.looks(self.user), login.FILE_VAULT, vms.PROBE, AGENT]

    def looks_further(self, seen: Facts) -> Sequence[Probe]:
        """Ask for the session of a user with another number."""
        return login.looks_further(self.user, seen)

    def refuse(self, seen: Facts) -> None:
        """Refuse an encrypted disk, and a Mac that needs a password when none was given."""
        login.refuse_file_vault(seen)
        if self.password or login.is_set_up(self.user, seen):
            return
        if login.is_sealed(seen):
            raise UnsupportedHost(
                f"macOS has put its mark of a wrong password into {host.KCPASSWORD}, so {self.user} will not be logged in any more, "
                "and no password was given; give the right one"
            )
        raise UnsupportedHost(
            f"automatic login of {self.user} is not set up, and no password was given; give it, or set the Mac up once with "
            "`bramley host prepare`"
        )

    def is_separable(self, seen: Facts) -> bool:
        """Tell whether the Mac has its agent, which serves the session of now and is updated without another one."""
        return seen.found(AGENT) is not None

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Set automatic login up, and log the user in if that ends nobody's work."""
        if self.password and not login.is_set_up(self.user, seen):
            yield from self._set_up(self.password, seen)
        else:
            yield from _close(seen)
        if not login.has_session(self.user, seen) and not vms.may_run(seen):
            yield from login.kick(login.uid_of(self.user, seen))

    def confirm(self, seen: Facts) -> None:
        """Tell that the password was wrong, or that nobody was logged in for another reason."""
        if login.is_sealed(seen):
            raise login.sealed_refusal(self.user)
        if not login.has_session(self.user, seen) and not vms.may_run(seen):
            raise NotConverged(
                f"nobody was logged in within {login.LOGIN.total_seconds():.0f} s after loginwindow was to be restarted; look at the Mac's "
                "screen for a window that waits for somebody, or restart it"
            )

    def pending(self, seen: Facts) -> str:
        """Tell that loginwindow has to be restarted, and must not be now."""
        if login.has_session(self.user, seen) or not vms.may_run(seen):
            return ""
        return f"LoginPending: {self.user} is not logged in, and loginwindow is not restarted while VMs run"

    def _set_up(self, password: Secret, seen: Facts) -> Iterator[Command]:
        yield login.check_password(self.user, password)
        # The user comes last: a cut before that is seen, and the password of another user does not stay.
        yield login.keep(password)
        setting = login.auto_login_user(self.user)
        if not setting.is_set(seen):
            yield setting.write()


def _close(seen: Facts) -> Iterator[Command]:
    """Close the file to others, if it is not."""
    found = seen.found(login.FOUND)
    if found is not None and (found.mode, found.owner) != (login.MODE, ROOT):
        purpose = "close the password of automatic login to others"
        yield Run(argv=("chown", ROOT, host.KCPASSWORD), purpose=purpose, as_root=True)
        yield Run(
            argv=("chmod", f"{login.MODE:04o}", host.KCPASSWORD), purpose=purpose, as_root=True
        )
