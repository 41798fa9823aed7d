"""A Mac prepared by hand: its password checked, then sudo without it and automatic login, with the same steps as ever.

Whoever types a password may mistype it, and a Mac whose sudo asks for none takes any; so it is checked first, once, and nothing is
written before. An older preparation may have left another one for the next login, so at the end the Mac has exactly this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bramley.base.errors import BramleyError, CommandFailed
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
    wanted = {step.name: step for step in (steps(user, password) if meant is None else meant)}
    if step := wanted.get(AutoLogin.name) or next(iter(wanted.values()), None):
        await _check(mac, user, password, step=step)
    report = await ensuring.apply(mac, [*wanted.values()], tell=tell, claim=claim)
    if AutoLogin.name not in report.changed:
        return report
    with _naming(mac, wanted[AutoLogin.name]):
        done = report.changed[AutoLogin.name] + await _keep(mac, password)
    return replace(report, changed={**report.changed, AutoLogin.name: done})


async def _check(mac: Connection, user: str, password: Secret, *, step: Step) -> None:
    """Refuse what a step would fail of: an encrypted disk, if it is automatic login, and a wrong password."""
    with _naming(mac, step):
        if step.name == AutoLogin.name:
            login.refuse_file_vault(await mac.look([login.FILE_VAULT]))
        await ensuring.do(mac, login.check_password(user, password))


@contextmanager
def _naming(mac: Connection, step: Step) -> Iterator[None]:
    try:
        yield
    except BramleyError as error:
        raise ensuring.named(step, mac, error) from error


async def _keep(mac: Connection, password: Secret) -> int:
    """Let the next login have this password, if the Mac has another one for it; returns how much was written."""
    try:
        await mac.do(login.is_kept(password))
    except CommandFailed:
        await mac.do(login.keep(password))
        return 1
    return 0
