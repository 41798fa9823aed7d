"""A Mac prepared by hand: its password checked, then sudo without it and automatic login, with the same steps as ever.

Whoever types a password may mistype it, and a Mac whose sudo asks for none takes any; so it is checked first, and asked for once
more at most: further wrong ones would lock the account.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bramley.base.errors import UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import ensuring, kcpassword, login
from bramley.host.connection import Connection
from bramley.host.ensuring import Progress, Report
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.sudo import Sudo

TRIES = 2

# Asks for the password without showing it; told which try this is, from 1.
Ask = Callable[[int], Awaitable[Secret]]


def steps(user: str, password: Secret | None) -> list[Step]:
    """Return what a prepared Mac needs, in order."""
    return [Sudo(user, password), AutoLogin(user, password)]


async def prepare(
    mac: Connection,
    user: str,
    *,
    ask: Ask,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Report:
    """Ask for the password and prepare the Mac; nothing is written before the password is known to be right."""
    login.refuse_file_vault(await mac.look([login.FILE_VAULT]))
    password = await _right_password(mac, user, ask)
    return await ensuring.apply(mac, steps(user, password), tell=tell)


async def _right_password(mac: Connection, user: str, ask: Ask) -> Secret:
    for tried in range(1, TRIES + 1):
        password = await ask(tried)
        # What cannot be one is refused without a try: even that would count as a wrong one.
        kcpassword.encode(password)
        try:
            await ensuring.do(mac, login.check_password(user, password))
        except UnsupportedHost as error:
            if tried == TRIES:
                raise UnsupportedHost(f"{mac.host}: {error}") from error
        else:
            return password
    raise AssertionError("the last try returns or raises")
