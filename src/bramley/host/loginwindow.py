"""Probes and commands of automatic login: the password file, its marker of a rejected password, and the graphical session.

Shared by steps, the preparation by hand and the verification. Of /etc/kcpassword only the marker ever leaves the Mac: the file contains
the password in a reversible cipher, and a digest of so short a text could be brute-forced. loginwindow is restarted through launchd
and never signalled: it does not come back after SIGHUP.

macOS shows the session to root only. A restart of loginwindow ends a live session, so it is restarted only if launchctl answered that
there is none: a refusal by sudo, a timeout or any other failure of that probe is no such answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from bramley.api.names import host, launchd, machines
from bramley.base.errors import UnsupportedHost
from bramley.base.secret import Secret, SecretBytes
from bramley.host import defaults, kcpassword, shared_probes
from bramley.host.commands import Command, Probe, ReadFile, Run, RunProbe, Stat, Wait, Write
from bramley.host.defaults import Default
from bramley.host.facts import FILE, Facts

PROMPT = "Password:"
# The uids of the first users of a Mac; any other uid costs a second round trip.
FIRST_UIDS = range(501, 504)
LOGIN_TIMEOUT = timedelta(seconds=30)
# The kind of a session is in the first lines of some 100 KiB.
_HEADER_BYTES = 4096
MODE = 0o600

MARKER_PROBE = ReadFile(
    host.KCPASSWORD, as_root=True, max_bytes=len(kcpassword.MARKER), prefix=kcpassword.MARKER
)
PASSWORD_FILE = Stat(host.KCPASSWORD)
FILE_VAULT = RunProbe(("fdesetup", "status"))
_OFF = "FileVault is Off."
# Printed on a second line, while the first one is still "FileVault is Off.".
_DEFERRED = "Deferred enablement"


def probes(user: str) -> list[Probe]:
    """Return the probes of automatic login of this user."""
    return [
        uid_probe(user),
        *(session_probe(uid) for uid in FIRST_UIDS),
        MARKER_PROBE,
        PASSWORD_FILE,
        auto_login_user(user).probe,
    ]


def follow_up_probes(user: str, facts: Facts) -> Sequence[Probe]:
    """Probe the session of a user who is not one of the first on the Mac."""
    uid = uid_of(user, facts)
    return [] if uid is None or uid in FIRST_UIDS else [session_probe(uid)]


def uid_probe(user: str) -> RunProbe:
    """Return the probe of a user's uid."""
    return RunProbe(("id", "-u", user))


def session_probe(uid: int | None) -> RunProbe:
    """Return the probe of a user's graphical session."""
    domain = launchd.gui(FIRST_UIDS[0] if uid is None else uid)
    return RunProbe(("launchctl", "print", domain), as_root=True, max_bytes=_HEADER_BYTES)


def auto_login_user(user: str) -> Default:
    """Return the setting that names the user of automatic login."""
    return Default(host.LOGINWINDOW_DEFAULTS, "autoLoginUser", user)


def uid_of(user: str, facts: Facts) -> int | None:
    """Return a user's uid; None if the user does not exist."""
    result = facts.result(uid_probe(user))
    return int(result.text) if result.code == 0 and result.text.isdecimal() else None


def has_session(user: str, facts: Facts) -> bool | None:
    """Return whether the user has a graphical session, which VMs need to start; None if that is unknown."""
    uid = uid_of(user, facts)
    if uid is None:
        return None
    result = facts.result(session_probe(uid))
    return launchd.has_gui_session(result.code, result.text)


def session_problem(user: str, facts: Facts) -> str:
    """Return that the user has no graphical session, or why that is unknown; empty if there is one."""
    uid = uid_of(user, facts)
    match has_session(user, facts):
        case True:
            return ""
        case False:
            return f"{user} is not logged in at the Mac, so no VM starts"
    if uid is None:
        return f"there is no user {user} on this Mac"
    probe = session_probe(uid)
    reason = defaults.describe_failure(probe, facts.result(probe))
    return f"whether {user} is logged in at the Mac is unknown: {reason}"


def is_password_rejected(facts: Facts) -> bool:
    """Return whether macOS has replaced the password by its marker, because it was wrong."""
    return kcpassword.is_rejected(facts.file(MARKER_PROBE) or b"")


def is_set_up(user: str, facts: Facts) -> bool:
    """Return whether automatic login is configured for this user, with a password that macOS has not rejected."""
    stat = facts.stat(PASSWORD_FILE)
    has_password = stat is not None and stat.kind == FILE and stat.size > 0
    return has_password and not is_password_rejected(facts) and auto_login_user(user).is_set(facts)


def check_file_vault(facts: Facts) -> None:
    """Refuse a Mac with FileVault: it needs a password at each boot, so automatic login is impossible."""
    if not is_file_vault_off(facts):
        status = " ".join(facts.result(FILE_VAULT).text.split())
        raise UnsupportedHost(
            f"FileVault is not permanently off ({status[:160] or 'fdesetup status printed nothing'}), so automatic login is impossible; "
            "turn it off with `sudo fdesetup disable` and wait until the disk is decrypted"
        )


def is_file_vault_off(facts: Facts) -> bool:
    """Return whether FileVault is off and not scheduled to be turned on at the next boot."""
    lines = facts.result(FILE_VAULT).text.splitlines()
    return lines[:1] == [_OFF] and not any(_DEFERRED in line for line in lines)


def reboot_blocker(facts: Facts) -> str:
    """Return why this run must not reboot the Mac; empty if it may."""
    if blocker := _unattended_reboot_blocker(facts):
        return blocker
    if facts.no_reboot:
        return "this run was started with --no-reboot; run it again without it when the Mac runs no VMs"
    if facts.is_rebooted:
        return "this run has rebooted the Mac once already; check why that boot did not help, then run this again"
    return ""


def _unattended_reboot_blocker(facts: Facts) -> str:
    """Return why an unattended reboot would leave the Mac unreachable or without a session; empty if it would not."""
    if not is_file_vault_off(facts):
        return "FileVault needs a password at the Mac's keyboard at each boot"
    if is_password_rejected(facts):
        return "no user would be logged in after a reboot, because the password of automatic login is wrong"
    return ""


def needs_login(user: str, facts: Facts) -> bool:
    """Return whether automatic login is configured and the user has no session, as after a boot without a display."""
    is_possible = is_set_up(user, facts) and not _unattended_reboot_blocker(facts)
    is_missing = has_session(user, facts) is False
    return is_possible and is_missing and not shared_probes.vms_may_run(facts)


def check_password(user: str, password: Secret) -> Run:
    """Return the command that checks a password: at a prompt, and only once, because wrong ones lock the account."""
    return Run(
        argv=("dscl", ".", "-authonly", user),
        purpose=f"check the password of {user}",
        prompt=PROMPT,
        stdin=password,
        refusal=f"the password is wrong: the Mac does not accept it for {user} (or has locked the account after too many wrong ones). "
        "It was not stored; enter the correct one",
    )


def write_password(password: Secret) -> Write:
    """Return the command that writes a checked password to the file of loginwindow."""
    return Write(
        path=host.KCPASSWORD,
        content=SecretBytes(kcpassword.encode(password)),
        purpose="write the password of automatic login",
        mode=MODE,
    )


def compare_password(password: Secret) -> Run:
    """Return the command that fails if the Mac has another password for automatic login; the comparison runs on the Mac."""
    return Run(
        argv=("cmp", "-s", "-", host.KCPASSWORD),
        purpose="compare the password of automatic login",
        as_root=True,
        stdin=SecretBytes(kcpassword.encode(password)),
    )


def rejected_password_error(user: str) -> UnsupportedHost:
    """Return the error if the marker exists after loginwindow has tried the password."""
    return UnsupportedHost(
        f"the password is wrong: loginwindow could not log {user} in with it, and macOS has written {machines.SEALED} to "
        f"{host.KCPASSWORD}; enter the user's current password and try again"
    )


def restart_loginwindow(uid: int | None) -> Iterator[Command]:
    """Yield the commands that restart loginwindow, which logs the user in, and wait for the session; never while VMs run."""
    yield shared_probes.require_no_vms()
    yield Run(
        argv=("launchctl", "kickstart", "-k", launchd.in_system(launchd.LOGINWINDOW)),
        purpose="restart loginwindow",
        as_root=True,
        # Newer releases of macOS refuse this for some system jobs; the session is probed in any case.
        ignore_failure=True,
    )
    yield wait_for_session(uid)


def wait_for_session(uid: int | None) -> Wait:
    """Return the command that waits for the graphical session."""
    return Wait(
        probe=session_probe(uid),
        text=launchd.GUI_SESSION,
        purpose="wait for the graphical session",
        timeout=LOGIN_TIMEOUT,
        # The step finds the reason of a missing session in its facts: a rejected password is one of several.
        ignore_failure=True,
    )
