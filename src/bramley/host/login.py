"""Automatic login as facts and commands: the password, the marker of a wrong one, and the graphical session.

Steps, the manual preparation and the verification share these words. Of /etc/kcpassword only the marker ever leaves the Mac: its
bytes are the password in a cipher that hides nothing, and a digest of so short a text would be as good. loginwindow is restarted by
launchd and never signalled: after a hang-up it does not come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from bramley.api.names import host, launchd, machines
from bramley.base.errors import UnsupportedHost
from bramley.base.secret import Secret, SecretBytes
from bramley.host import kcpassword, vms
from bramley.host.commands import Command, Find, Look, LookAt, Probe, Run, Wait, Write
from bramley.host.defaults import Default
from bramley.host.facts import FILE, Facts

ALIVE = "session = Aqua"
PROMPT = "Password:"
# The number of the first user of a Mac; another one costs a second round trip.
FIRST_UID = 501
LOGIN = timedelta(seconds=30)
MODE = 0o600

MARKER = LookAt(host.KCPASSWORD, as_root=True, most=len(kcpassword.MARKER), only=kcpassword.MARKER)
FOUND = Find(host.KCPASSWORD)
FILE_VAULT = Look(("fdesetup", "status"))
_OFF = "FileVault is Off."
# A second line, while the first still says that it is off.
_COMING = "Deferred enablement"


def looks(user: str) -> list[Probe]:
    """Ask for all that automatic login of this user depends on."""
    return [uid_look(user), session_look(FIRST_UID), MARKER, FOUND, auto_login_user(user).look]


def looks_further(user: str, seen: Facts) -> Sequence[Probe]:
    """Ask for the session of a user who is not the first one of the Mac."""
    uid = uid_of(user, seen)
    return [] if uid in {None, FIRST_UID} else [session_look(uid)]


def uid_look(user: str) -> Look:
    """Ask for a user's number."""
    return Look(("id", "-u", user))


def session_look(uid: int | None) -> Look:
    """Ask for the graphical session of a user."""
    return Look(("launchctl", "print", launchd.gui(FIRST_UID if uid is None else uid)))


def auto_login_user(user: str) -> Default:
    """Return the setting that names who is logged in."""
    return Default(host.LOGINWINDOW_DEFAULTS, "autoLoginUser", user)


def uid_of(user: str, seen: Facts) -> int | None:
    """Return a user's number; None if there is no such user."""
    told = seen.said(uid_look(user))
    return int(told.text) if told.code == 0 and told.text.isdecimal() else None


def has_session(user: str, seen: Facts) -> bool:
    """Tell whether the user is logged in at the Mac itself, without which no VM starts."""
    uid = uid_of(user, seen)
    if uid is None:
        return False
    told = seen.said(session_look(uid))
    return told.code == 0 and ALIVE in told.text


def is_sealed(seen: Facts) -> bool:
    """Tell whether macOS has put its marker in place of the password, because that was wrong."""
    return kcpassword.is_sealed(seen.file(MARKER) or b"")


def is_set_up(user: str, seen: Facts) -> bool:
    """Tell whether this user is to be logged in, with a password that has not turned out to be wrong."""
    found = seen.found(FOUND)
    has_password = found is not None and found.kind == FILE and found.size > 0
    return has_password and not is_sealed(seen) and auto_login_user(user).is_set(seen)


def refuse_file_vault(seen: Facts) -> None:
    """Refuse a Mac whose disk asks for a password at each start, so that nobody is ever logged in by itself."""
    if not stays_unencrypted(seen):
        told = " ".join(seen.said(FILE_VAULT).text.split())
        raise UnsupportedHost(
            f"FileVault is not off for good ({told[:160] or 'fdesetup status said nothing'}), so automatic login is impossible; turn it "
            "off with `sudo fdesetup disable` and wait until the disk is decrypted"
        )


def stays_unencrypted(seen: Facts) -> bool:
    """Tell whether FileVault is off and is not about to be turned on: what asks for a password at the next start is no longer off."""
    lines = seen.said(FILE_VAULT).text.splitlines()
    return lines[:1] == [_OFF] and not any(_COMING in line for line in lines)


def lost_by_restart(seen: Facts) -> str:
    """Return why a restart by itself would leave the Mac unreachable or without its user; empty if it would not."""
    if not stays_unencrypted(seen):
        return "FileVault asks for a password at each start, so somebody must be at the Mac then"
    if is_sealed(seen):
        return "nobody would be logged in after it, since the password of automatic login is wrong"
    return ""


def is_due(user: str, seen: Facts) -> bool:
    """Tell whether a user who is to be logged in by itself is not, as after a start of a Mac without a display."""
    is_possible = is_set_up(user, seen) and not lost_by_restart(seen)
    return is_possible and not has_session(user, seen) and not vms.may_run(seen)


def check_password(user: str, password: Secret) -> Run:
    """Return what asks the Mac whether a password is right: at a prompt, and once, since wrong ones lock the account."""
    return Run(
        argv=("dscl", ".", "-authonly", user),
        purpose=f"check the password of {user}",
        prompt=PROMPT,
        stdin=password,
        refusal=f"the password is wrong: the Mac does not take it for {user} (or has locked the account after too many wrong ones). "
        "It was not written anywhere; give the right one",
    )


def keep(password: Secret) -> Write:
    """Return what writes a password that was found right, for loginwindow alone."""
    return Write(
        path=host.KCPASSWORD,
        content=SecretBytes(kcpassword.encode(password)),
        purpose="keep the password of automatic login",
        mode=MODE,
    )


def is_kept(password: Secret) -> Run:
    """Return what fails if the Mac has another password for automatic login; the two are compared there."""
    return Run(
        argv=("cmp", "-s", "-", host.KCPASSWORD),
        purpose="compare the password of automatic login",
        as_root=True,
        stdin=SecretBytes(kcpassword.encode(password)),
    )


def sealed_refusal(user: str) -> UnsupportedHost:
    """Return what is told when the marker is there after loginwindow has tried the password."""
    return UnsupportedHost(
        f"the password is wrong: loginwindow could not log {user} in with it, and macOS has put {machines.SEALED} into "
        f"{host.KCPASSWORD}; set the user's password and this one to the same, then try again"
    )


def kick(uid: int | None) -> Iterator[Command]:
    """Yield what restarts loginwindow, which then logs the user in, and waits for the session; never while VMs run."""
    yield vms.none_has_started()
    yield Run(
        argv=("launchctl", "kickstart", "-k", launchd.in_system(launchd.LOGINWINDOW)),
        purpose="restart loginwindow",
        as_root=True,
        # Newer releases refuse it for some of macOS' own jobs; whether somebody is logged in is seen anyway.
        else_go_on=True,
    )
    yield await_session(uid)


def await_session(uid: int | None) -> Wait:
    """Return what waits for the user to be logged in."""
    return Wait(
        look=session_look(uid),
        text=ALIVE,
        purpose="wait for the graphical session",
        within=LOGIN,
        # Why it did not come is told from the facts: a sealed password is one reason of several.
        else_go_on=True,
    )
