"""Who sends a request: the owner of a token, else of the connection's client certificate, else nobody in particular.

A credential that is there and wrong is a 401, however open the path is; none at all makes the user anonymous. Which token
it is decides itself by its form: ours are random texts, those of ServiceAccounts are signed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bramley.apiserver import status
from bramley.apiserver.auth import users
from bramley.apiserver.auth.users import ANONYMOUS, User
from bramley.apiserver.rest.exchange import Request
from bramley.base.clock import Clock

if TYPE_CHECKING:
    from bramley.apiserver.auth.accounts import Accounts

Authenticate = Callable[[str | None], User | None]

_BEARER = "bearer "


class Authenticator:
    """Finds the user of a request."""

    def __init__(self, known: Authenticate, accounts: Accounts, clock: Clock) -> None:
        self._known = known
        self._accounts = accounts
        self._clock = clock

    def identify(self, request: Request) -> User:
        """Return who asks; raise a 401 for a credential that is not good."""
        header = request.header(b"authorization")
        if header:
            return users.authenticated(self._owner(header))
        peer = request.peer
        if peer is None:
            return ANONYMOUS
        if not peer.is_valid(self._clock.now()):
            raise status.unauthorized()
        return users.authenticated(peer.user)

    def _owner(self, header: str) -> User:
        if header[: len(_BEARER)].lower() != _BEARER:
            raise status.unauthorized()
        token = header[len(_BEARER) :].strip()
        owner = self._known(token)
        if owner is None and token.count(".") == 2:
            owner = self._accounts.owner(token)
        if owner is None:
            raise status.unauthorized()
        return owner
