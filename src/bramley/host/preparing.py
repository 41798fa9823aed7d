"""A Mac prepared by hand: its password checked, then sudo without it and automatic login, with the same steps as ever.

Whoever types a password may mistype it, and a Mac whose sudo asks for none takes any; so it is checked first, once, and nothing is
written before. An older preparation may have left another one for the next login, so at the end the Mac has exactly this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bramley.base.errors import CommandFailed, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import ensuring, kcpassword, login
from bramley.host.claiming import Claim
from bramley.host.connection import Connection
from bramley.host.ensuring import Progress, Report
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.sudo import Sudo

NAMES = (Sudo.name, AutoLogin.name)


def steps(user: str, password: Secret) -> list[Step]:
    """Return the steps that need the password."""
    return [Sudo(user, password), AutoLogin(user, password)]


async def prepare(
    mac: Connection,
    user: str,
    password: Secret,
    *,
    meant: Sequence[Step] | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
    claim: Claim | None = None,
) -> Report:
    """Make a Mac ready for everything that is done without its password; `meant` are those steps that are, all by default."""
    # What cannot be a password is refused without a try, which would count as a wrong one.
    kcpassword.encode(password)
    await _check(mac, user, password)
    wanted = steps(user, password) if meant is None else meant
    report = await ensuring.apply(mac, wanted, tell=tell, claim=claim)
    if AutoLogin.name not in report.changed:
        return report
    done = report.changed[AutoLogin.name] + await _keep(mac, password)
    return replace(report, changed={**report.changed, AutoLogin.name: done})


async def _check(mac: Connection, user: str, password: Secret) -> None:
    try:
        login.refuse_file_vault(await mac.look([login.FILE_VAULT]))
        await ensuring.do(mac, login.check_password(user, password))
    except UnsupportedHost as error:
        raise UnsupportedHost(f"{mac.host}: {error}") from error


async def _keep(mac: Connection, password: Secret) -> int:
    """Let the next login have this password, if the Mac has another one for it; returns how much was written."""
    try:
        await mac.do(login.is_kept(password))
    except CommandFailed:
        await mac.do(login.keep(password))
        return 1
    return 0
