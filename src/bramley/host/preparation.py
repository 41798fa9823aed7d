"""The preparation of a Mac by hand: check its password, then set up passwordless sudo and automatic login, with the usual steps.

A typed password may be wrong, and a Mac with passwordless sudo would not notice; so it is checked first, once, before anything is
written. An earlier preparation may have stored another password for automatic login, so it is replaced at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bramley.base.errors import BramleyError, CommandFailed
from bramley.base.secret import Secret
from bramley.host import converge, kcpassword, loginwindow, step_runner
from bramley.host.claim import Claim
from bramley.host.connection import Connection
from bramley.host.progress import OnProgress, Report
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
    selected: Sequence[Step] | None = None,
    on_progress: OnProgress = lambda _: None,
    claim: Claim | None = None,
) -> Report:
    """Set up everything that needs the user's password; `selected` are the steps to apply, by default all."""
    # A string that cannot be a password is refused without a login attempt, which would count as a wrong one.
    kcpassword.encode(password)
    chosen = {step.name: step for step in (steps(user, password) if selected is None else selected)}
    if step := chosen.get(AutoLogin.name) or next(iter(chosen.values()), None):
        await _check(mac, user, password, step=step)
    report = await converge.apply(mac, [*chosen.values()], on_progress=on_progress, claim=claim)
    if AutoLogin.name not in report.changed:
        return report
    with _step_errors(mac, chosen[AutoLogin.name]):
        changed = report.changed[AutoLogin.name] + await _store_password(mac, password)
    return replace(report, changed={**report.changed, AutoLogin.name: changed})


async def _check(mac: Connection, user: str, password: Secret, *, step: Step) -> None:
    """Refuse what the step would fail on: FileVault, for automatic login, and a wrong password."""
    with _step_errors(mac, step):
        if step.name == AutoLogin.name:
            loginwindow.check_file_vault(await mac.probe([loginwindow.FILE_VAULT]))
        await converge.execute(mac, loginwindow.check_password(user, password))


@contextmanager
def _step_errors(mac: Connection, step: Step) -> Iterator[None]:
    try:
        yield
    except BramleyError as error:
        raise step_runner.with_step_name(step, mac, error) from error


async def _store_password(mac: Connection, password: Secret) -> int:
    """Write the password of automatic login if the Mac has another one; return the number of commands."""
    try:
        await mac.execute(loginwindow.compare_password(password))
    except CommandFailed:
        await mac.execute(loginwindow.write_password(password))
        return 1
    return 0
