"""Automatic login: VMs start only while the user has a graphical session.

A password is checked before it is written, because nothing else refuses a wrong one; after loginwindow has tried it, macOS' marker
of a rejected password is probed, and so it is in every later run, because macOS may write it at any login. loginwindow is restarted
only if the user is known not to be logged in and no VM runs. A working configuration is not changed, whatever password is given. A Mac that cannot
have automatic login does not become a Node; one that is a Node already still gets all other steps, such as updates of the agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.base.errors import NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import kcpassword, loginwindow, shared_probes
from bramley.host.commands import ROOT, Command, Probe, Run
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.host.steps.preconditions import AGENT_PLIST


@dataclass(frozen=True, slots=True)
class AutoLogin(Step):
    """Keep the user logged in at the Mac."""

    name: ClassVar[str] = "auto-login"
    title: ClassVar[str] = "automatic login"

    user: str
    password: Secret | None = None

    def __post_init__(self) -> None:
        if self.password:
            kcpassword.encode(self.password)

    def probes(self) -> list[Probe]:
        """Probe the settings, the marker of a rejected password, the session, VMs, the agent and FileVault."""
        return [
            *loginwindow.probes(self.user),
            loginwindow.FILE_VAULT,
            shared_probes.RUNNING_VMS,
            AGENT_PLIST,
        ]

    def follow_up_probes(self, facts: Facts) -> Sequence[Probe]:
        """Probe the session of a user with another uid."""
        return loginwindow.follow_up_probes(self.user, facts)

    def check_supported(self, facts: Facts) -> None:
        """Refuse FileVault, and a Mac that needs a password when none was given."""
        loginwindow.check_file_vault(facts)
        if self.password or loginwindow.is_set_up(self.user, facts):
            return
        if loginwindow.is_password_rejected(facts):
            raise UnsupportedHost(
                f"macOS has marked the password in {host.KCPASSWORD} as wrong, so {self.user} will not be logged in any more, "
                "and no password was given; provide the correct one"
            )
        if reason := loginwindow.auto_login_user(self.user).read_error(facts):
            raise UnsupportedHost(
                f"whether automatic login of {self.user} is set up is unknown ({reason}), and no password was given; provide it, or set "
                "the Mac up once with `bramley host prepare`"
            )
        raise UnsupportedHost(
            f"automatic login of {self.user} is not set up, and no password was given; provide it, or set the Mac up once with "
            "`bramley host prepare`"
        )

    def is_skippable(self, facts: Facts) -> bool:
        """Return whether the Mac has an agent: it works in the current session and can be updated without another one."""
        return facts.stat(AGENT_PLIST) is not None

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Set automatic login up, and log the user in if no VM would be interrupted."""
        if self.password and not loginwindow.is_set_up(self.user, facts):
            yield from self._set_up(self.password, facts)
        else:
            yield from _restrict(facts)
        if shared_probes.vms_may_run(facts):
            return
        uid, has_session = loginwindow.uid_of(self.user, facts), self._has_session(facts)
        if has_session is False:
            yield from loginwindow.restart_loginwindow(uid)
        elif has_session is None:
            # Probed again, for `verify`: without an answer a restart might end a session.
            yield loginwindow.wait_for_session(uid)

    def verify(self, facts: Facts) -> None:
        """Report that the password was wrong, or that the user was not logged in for another reason."""
        if loginwindow.is_password_rejected(facts):
            raise loginwindow.rejected_password_error(self.user)
        if self._has_session(facts) or shared_probes.vms_may_run(facts):
            return
        if self._has_session(facts) is None:
            raise NotConverged(
                f"{loginwindow.session_problem(self.user, facts)}; loginwindow was not restarted, because that would end a session; "
                "make that command work, then run this again"
            )
        raise NotConverged(
            f"{self.user} was not logged in within {loginwindow.LOGIN_TIMEOUT.total_seconds():.0f} s after loginwindow was to be "
            "restarted; check the Mac's screen for a dialog, or reboot it"
        )

    def pending(self, facts: Facts) -> str:
        """Return that loginwindow has to be restarted, and must not be now."""
        has_session = self._has_session(facts)
        if has_session or not shared_probes.vms_may_run(facts):
            return ""
        is_missing = f"{self.user} is not logged in"
        problem = (
            is_missing if has_session is False else loginwindow.session_problem(self.user, facts)
        )
        return f"LoginPending: {problem}, and loginwindow is not restarted while VMs run"

    def _has_session(self, facts: Facts) -> bool | None:
        return loginwindow.has_session(self.user, facts)

    def _set_up(self, password: Secret, facts: Facts) -> Iterator[Command]:
        yield loginwindow.check_password(self.user, password)
        # The user must come last: the next plan then detects an interruption, and replaces the password of another user.
        yield loginwindow.write_password(password)
        setting = loginwindow.auto_login_user(self.user)
        if not setting.is_set(facts):
            yield setting.write()


def _restrict(facts: Facts) -> Iterator[Command]:
    """Yield the commands that make the password file readable by root only, if others may read it."""
    stat = facts.stat(loginwindow.PASSWORD_FILE)
    if stat is not None and (stat.mode, stat.owner) != (loginwindow.MODE, ROOT):
        purpose = "restrict the password of automatic login to root"
        yield Run(argv=("chown", ROOT, host.KCPASSWORD), purpose=purpose, as_root=True)
        yield Run(
            argv=("chmod", f"{loginwindow.MODE:04o}", host.KCPASSWORD),
            purpose=purpose,
            as_root=True,
        )
