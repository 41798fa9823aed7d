"""Who sends a request: the owner of a token, else of the connection's client certificate, else nobody in particular.

A credential that is there and wrong is a 401, however open the path is; none at all makes the user anonymous. Which token
it is decides itself by its form: ours are random texts, those of ServiceAccounts are signed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from bramley.apiserver.apimachinery import status, users
from bramley.apiserver.apimachinery.users import ANONYMOUS, User
from bramley.apiserver.auth.accounts import Accounts, BadToken
from bramley.apiserver.http.exchange import Request
from bramley.base.clock import Clock

Authenticate = Callable[[str | None], User | None]

_BEARER = "bearer "
_BAD = "invalid bearer token"


class Reviewed(msgspec.Struct, frozen=True):
    """Whose a token is and for which audiences, or what is wrong with it."""

    user: User | None = None
    audiences: tuple[str, ...] = ()
    error: str = ""


class Authenticator:
    """Finds the user of a request."""

    def __init__(self, known: Authenticate, accounts: Accounts, clock: Clock) -> None:
        self._known = known
        self.accounts = accounts
        self._clock = clock

    def identify(self, request: Request) -> User:
        """Return who asks; raise a 401 for a credential that is not good."""
        header = request.header(b"authorization")
        if header:
            if request.repeats(b"authorization"):
                # Which of two would be checked must not depend on who reads them, us or a proxy.
                raise status.unauthorized()
            return users.authenticated(self._owner(header))
        peer = request.peer
        if peer is None:
            return ANONYMOUS
        if not peer.is_valid(self._clock.now()):
            raise status.unauthorized()
        return users.authenticated(peer.user)

    def review(self, token: str, audiences: Sequence[str]) -> Reviewed:
        """Return whose token it is, if it is good for one of the audiences; none named are those of this API."""
        ours = self.accounts.settings.audiences
        wanted = audiences or ours
        user = self._known(token)
        if user is not None:
            shared = tuple(each for each in wanted if each in ours)
            # A token of ours lets into this API and nowhere else.
            return Reviewed(users.authenticated(user), shared) if shared else Reviewed(error=_BAD)
        if not self.accounts.is_ours(token):
            return Reviewed(error=_BAD)
        try:
            owner, shared_by_token = self.accounts.review(token, wanted)
        except BadToken as bad:
            return Reviewed(error=f"[{_BAD}, {bad}]")
        return Reviewed(owner, tuple(shared_by_token))

    def _owner(self, header: str) -> User:
        if header[: len(_BEARER)].lower() != _BEARER:
            raise status.unauthorized()
        token = header[len(_BEARER) :].strip()
        owner = self._known(token)
        if owner is None and token.count(".") == 2:
            owner = self.accounts.owner(token)
        if owner is None:
            raise status.unauthorized()
        return owner
