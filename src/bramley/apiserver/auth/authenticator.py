"""Authentication: the owner of a bearer token, else of the connection's client certificate, else the anonymous user.

A wrong credential is a 401, also for paths that are open to anonymous users. Tokens of users are random strings, those of
ServiceAccounts are signed JWTs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from bramley.apiserver.apimachinery import status, users
from bramley.apiserver.apimachinery.users import ANONYMOUS, User
from bramley.apiserver.auth.service_account_tokens import BadToken, ServiceAccountTokens
from bramley.apiserver.http.exchange import Request
from bramley.base.clock import Clock

Authenticate = Callable[[str | None], User | None]

_BEARER = "bearer "
_INVALID = "invalid bearer token"


class TokenReview(msgspec.Struct, frozen=True):
    """The owner of a token and its audiences, or the reason why it is invalid."""

    user: User | None = None
    audiences: tuple[str, ...] = ()
    error: str = ""


class Authenticator:
    """Finds the user of a request."""

    def __init__(
        self, identify: Authenticate, accounts: ServiceAccountTokens, clock: Clock
    ) -> None:
        self._identify = identify
        self.accounts = accounts
        self._clock = clock

    def identify(self, request: Request) -> User:
        """Return the user of a request; raise a 401 for an invalid credential."""
        header = request.header(b"authorization")
        if header:
            if request.repeats(b"authorization"):
                # A proxy in front of the server might check another one of them.
                raise status.unauthorized()
            return users.authenticated(self._owner(header))
        peer = request.peer
        if peer is None:
            return ANONYMOUS
        # A connection may outlive the certificate that it was opened with.
        if not peer.is_valid(self._clock.now()):
            raise status.unauthorized()
        return users.authenticated(peer.user)

    def review(self, token: str, audiences: Sequence[str]) -> TokenReview:
        """Return the owner of a token that is valid for one of the audiences; by default these are the API's own."""
        own_audiences = self.accounts.settings.audiences
        requested = audiences or own_audiences
        user = self._identify(token)
        if user is not None:
            shared = tuple(each for each in requested if each in own_audiences)
            # A user's token is valid for this API only.
            if shared:
                return TokenReview(users.authenticated(user), shared)
        if user is not None or not self.accounts.has_own_issuer(token):
            return TokenReview(error=_INVALID)
        try:
            owner, shared_by_token = self.accounts.review(token, requested)
        except BadToken as error:
            return TokenReview(error=f"[{_INVALID}, {error}]")
        return TokenReview(owner, tuple(shared_by_token))

    def _owner(self, header: str) -> User:
        if header[: len(_BEARER)].lower() != _BEARER:
            raise status.unauthorized()
        token = header[len(_BEARER) :].strip()
        owner = self._identify(token)
        if owner is None and token.count(".") == 2:
            owner = self.accounts.owner(token)
        if owner is None:
            raise status.unauthorized()
        return owner
