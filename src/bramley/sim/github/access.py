"""Who may call the simulated GitHub: JWTs of the App, verified by RS256, and tokens of its installations."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from bramley.base.clock import Clock
from bramley.sim.github.records import Account, Refusal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from jwt.types import Options

MAX_JWT_LIFETIME = timedelta(minutes=10)
TOKEN_LIFETIME = timedelta(hours=1)
WINDOW = timedelta(hours=1)
_IAT = "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
_EXP = "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires"
_EXP_TOO_FAR = "'Expiration time' claim ('exp') is too far in the future"


@dataclass(slots=True)
class Budget:
    """The primary rate limit of one caller."""

    limit: int
    used: int = 0
    reset: datetime | None = None

    def check(self, now: datetime, who: str) -> None:
        """Raise a Refusal if the limit is reached."""
        if self.reset is None or now >= self.reset:
            self.used, self.reset = 0, now + WINDOW
        if self.used >= self.limit:
            raise Refusal(403, f"API rate limit exceeded for {who}.", **self.headers())

    def headers(self) -> dict[str, str]:
        """Return the headers that show the budget."""
        reset = 0 if self.reset is None else int(self.reset.timestamp())
        return {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(self.limit - self.used),
            "x-ratelimit-used": str(self.used),
            "x-ratelimit-reset": str(reset),
            "x-ratelimit-resource": "core",
        }


@dataclass(frozen=True, slots=True)
class Caller:
    """The App itself, or its installation in an account."""

    account: Account | None
    budget: Budget

    def require(self, login: str, permission: str) -> None:
        """Raise a Refusal unless the installation is in this account and has the permission."""
        if self.account is None:
            raise Refusal(403, "Resource not accessible by integration")
        if self.account.login.lower() != login.lower():
            raise Refusal(404, "Not Found")
        if permission not in self.account.permissions:
            raise Refusal(403, "Resource not accessible by integration")


@dataclass(slots=True, eq=False)
class Access:
    """The public keys of the App, and the tokens that are valid."""

    app_id: str
    clock: Clock
    limit: int
    rng: random.Random
    # By a name of the scenario; a key that is removed is revoked.
    keys: dict[str, RSAPublicKey] = field(default_factory=dict)
    _tokens: dict[str, tuple[Account, datetime]] = field(default_factory=dict)
    # The owner of the runners that a token registers, and when it expires.
    _registration_tokens: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    _budgets: dict[int, Budget] = field(default_factory=dict)

    def authenticate(self, headers: Mapping[str, str]) -> Caller:
        """Return who sent a request; a Refusal if the credential is not valid."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in {"bearer", "token"} or not token:
            raise Refusal(401, "Requires authentication")
        if token.count(".") == 2:
            self._verify(token)
            return Caller(None, self.budget(0))
        account, expires = self._tokens.get(token, (None, self.clock.now()))
        if account is None or expires <= self.clock.now():
            raise Refusal(401, "Bad credentials")
        _require_active(account)
        return Caller(account, self.budget(account.installation_id))

    def budget(self, installation_id: int) -> Budget:
        """Return the budget of an installation, or that of the App itself for 0."""
        return self._budgets.setdefault(installation_id, Budget(self.limit))

    def create_token(self, account: Account) -> tuple[str, datetime]:
        """Return a new token of an installation and when it expires."""
        _require_active(account)
        token = f"ghs_{self.rng.getrandbits(144):036x}"
        self._tokens[token] = account, self.clock.now() + TOKEN_LIFETIME
        return self._visible(token)

    def create_registration_token(self, owner: str) -> tuple[str, datetime]:
        """Return a new token that registers runners of an owner, and when it expires."""
        token = f"A{self.rng.getrandbits(110):028X}"
        self._registration_tokens[token] = owner, self.clock.now() + TOKEN_LIFETIME
        return token, self._registration_tokens[token][1]

    def require_registration(self, token: str, owner: str) -> None:
        """Raise a Refusal unless the token registers runners of this owner."""
        found, expires = self._registration_tokens.get(token, ("", self.clock.now()))
        if found != owner or expires <= self.clock.now():
            raise Refusal(404, "Not Found")

    def valid_tokens(self) -> list[str]:
        """Return the tokens that have not been revoked."""
        return list(self._tokens)

    def revoke_tokens(self) -> None:
        """Make all tokens invalid before they expire."""
        self._tokens.clear()

    def _visible(self, token: str) -> tuple[str, datetime]:
        return token, self._tokens[token][1].replace(microsecond=0)

    def _verify(self, token: str) -> None:
        claims = self._claims(token)
        now = self.clock.now().timestamp()
        issued, expires = claims.get("iat"), claims.get("exp")
        # Without tolerance: a client has to allow for the difference between the clocks.
        if not isinstance(issued, int) or issued > now:
            raise Refusal(401, _IAT)
        if not isinstance(expires, int) or expires <= now:
            raise Refusal(401, _EXP)
        if expires > now + MAX_JWT_LIFETIME.total_seconds():
            raise Refusal(401, _EXP_TOO_FAR)
        if str(claims.get("iss")) != self.app_id:
            raise Refusal(404, "Integration not found")

    def _claims(self, token: str) -> dict[str, Any]:
        import jwt

        for key in self.keys.values():
            try:
                # Times are checked by the clock of the simulation.
                unchecked: Options = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}
                return jwt.decode(token, key, algorithms=["RS256"], options=unchecked)
            except jwt.InvalidTokenError:
                continue
        raise Refusal(401, "A JSON web token could not be decoded")


def _require_active(account: Account) -> None:
    if account.is_suspended:
        raise Refusal(403, "This installation has been suspended")
