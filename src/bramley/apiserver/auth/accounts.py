"""Tokens of ServiceAccounts: minted for a while and for audiences, bound to objects, and good only while these live.

A signature is verified once per token and remembered; the times, the audiences, the account and the object that the token
is bound to are looked at on every use. The words of `BadToken` are those of a real server and hold nothing of the token.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from bramley.apiserver.apimachinery import users
from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.rules import texts
from bramley.apiserver.auth.signing import ALGORITHM, Keys
from bramley.apiserver.store.records import Key, Record
from bramley.apiserver.store.store import Store
from bramley.base.clock import Clock
from bramley.base.secret import Secret

if TYPE_CHECKING:
    from jwt.types import Options

ISSUER = "https://kubernetes.default.svc.cluster.local"
EXTRA = "authentication.kubernetes.io/"
INVALIDATED = "service account token has been invalidated"
# Clocks differ, and who deletes an object gives its users a moment.
LEEWAY = timedelta(minutes=1)
_REMEMBERED = 4096
# Characters of a token; one with audiences without end is verified each time instead.
_LONGEST_REMEMBERED = 4096
_FORGED = "invalid signature"
_CHECKED: Options = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


class BadToken(Exception):
    """A token that is not accepted; the text says why."""


class Reference(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An object that a token speaks of."""

    name: str = ""
    uid: str = ""


class _Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: str = ""
    serviceaccount: Reference = Reference()
    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None


class Claims(msgspec.Struct, frozen=True):
    """What a token says."""

    iss: str
    sub: str
    aud: list[str]
    exp: int
    iat: int
    nbf: int
    jti: str
    kubernetes: _Claim = msgspec.field(name="kubernetes.io")


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    uid: str = ""
    deletion_timestamp: datetime | None = msgspec.field(name="deletionTimestamp", default=None)


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


class Settings(msgspec.Struct, frozen=True):
    """Who signs, for whom by default, and how long a token may live."""

    issuer: str = ISSUER
    audiences: tuple[str, ...] = (ISSUER,)
    longest: timedelta = timedelta(days=365)


class Bound(msgspec.Struct, frozen=True):
    """What a token is to die with: a Pod, with the node it is on, or a Secret or a Node."""

    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None


class _Known(msgspec.Struct):
    """A token whose signature was verified, and the objects that it was last seen to live with."""

    claims: Claims
    user: User
    alive: dict[Key, Record] = {}


class Accounts:
    """Mints tokens of ServiceAccounts and tells whose one is."""

    def __init__(
        self, store: Store, keys: Keys, *, clock: Clock, settings: Settings | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._known_of = 0
        self.keys = keys
        self.settings = settings or Settings()

    def issue(
        self,
        account: tuple[str, Reference],
        *,
        audiences: Sequence[str],
        lifetime: timedelta,
        bound: Bound,
        make_id: Callable[[], uuid.UUID],
    ) -> Secret:
        """Return a new token of an account, given as its namespace, its name and its uid."""
        namespace, reference = account
        now = int(self._clock.now().timestamp())
        claims = Claims(
            iss=self.settings.issuer,
            sub=users.account_name(namespace, reference.name),
            aud=list(audiences),
            exp=now + int(lifetime.total_seconds()),
            iat=now,
            nbf=now,
            jti=str(make_id()),
            kubernetes=_Claim(namespace, reference, bound.pod, bound.secret, bound.node),
        )
        return Secret(self.keys.sign(msgspec.to_builtins(claims)))

    def rotate_keys(self, *, void_old: bool = False) -> None:
        """Sign with a new key from now on; the one before verifies until its last token can have ended, or no longer."""
        self.keys.rotate(until=self._clock.now() + self.settings.longest + LEEWAY)
        if void_old:
            self.keys.retire()

    def owner(self, token: str) -> User | None:
        """Return whose token it is, None if it does not let anybody into this API."""
        try:
            return self.review(token, self.settings.audiences)[0]
        except BadToken:
            return None

    def is_ours(self, token: str) -> bool:
        """Tell whether a text has the form of a token that claims to be from this issuer."""
        return _unverified_issuer(token) == self.settings.issuer

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]]:
        """Return whose token it is and for which of the audiences; raise BadToken if it is not good for any."""
        known = self._verified(token)
        claims = known.claims
        shared = [each for each in audiences if each in claims.aud]
        if not shared:
            told = f"token audiences {texts(claims.aud)} is invalid for the target audiences"
            raise BadToken(f"{told} {texts(audiences)}")
        now = self._clock.now()
        _check_times(claims, now)
        self._check_alive(known, now)
        return known.user, shared

    def _verified(self, token: str) -> _Known:
        if self._known_of != self.keys.changes:
            self._known, self._known_of = {}, self.keys.changes
        if not token.isascii():
            raise BadToken(_FORGED)
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is None:
            claims = _decoded(token, self.keys)
            if claims.iss != self.settings.issuer:
                raise BadToken(f"token issuer {quoted(claims.iss)} is invalid")
            known = _Known(claims, _user(claims))
            self._known_of = self.keys.changes
            if len(token) > _LONGEST_REMEMBERED:
                return known
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[digest] = known
        return known

    def _check_alive(self, known: _Known, now: datetime) -> None:
        claim = known.claims.kubernetes
        home, account = claim.namespace, claim.serviceaccount
        self._check_one(known, Key("serviceaccounts", home, account.name), account.uid, now)
        if claim.secret is not None:
            self._check_one(known, Key("secrets", home, claim.secret.name), claim.secret.uid, now)
        if claim.pod is not None:
            self._check_one(known, Key("pods", home, claim.pod.name), claim.pod.uid, now)
        elif claim.node is not None:
            self._check_one(known, Key("nodes", "", claim.node.name), claim.node.uid, now)

    def _check_one(self, known: _Known, key: Key, uid: str, now: datetime) -> None:
        record = self._store.get(key)
        if record is not None and known.alive.get(key) is record:
            return
        if record is None:
            raise BadToken(_gone(key))
        meta: _Metadata | None = None
        with self._store.damage.skip_unreadable(record):
            meta = msgspec.json.decode(record.body, type=_Object).metadata
        if meta is None:
            raise BadToken(_gone(key))
        if meta.uid != uid:
            raise BadToken(_other(key, meta.uid, uid))
        if meta.deletion_timestamp is None:
            known.alive[key] = record
        elif meta.deletion_timestamp < now - LEEWAY:
            raise BadToken(_deleted(key))


def _check_times(claims: Claims, now: datetime) -> None:
    at, leeway = now.timestamp(), LEEWAY.total_seconds()
    if at + leeway < claims.nbf:
        raise BadToken("service account token is not valid yet")
    if at - leeway > claims.exp:
        raise BadToken("service account token has expired")
    if at + leeway < claims.iat:
        raise BadToken("service account token is issued in the future")


def _user(claims: Claims) -> User:
    claim = claims.kubernetes
    extra = {f"{EXTRA}credential-id": (f"JTI={claims.jti}",)}
    for name, reference in (("node", claim.node), ("pod", claim.pod)):
        if reference is not None and reference.name:
            extra[f"{EXTRA}{name}-name"] = (reference.name,)
            if reference.uid:
                extra[f"{EXTRA}{name}-uid"] = (reference.uid,)
    account = claim.serviceaccount
    groups = (*users.account_groups(claim.namespace), users.AUTHENTICATED)
    return User(users.account_name(claim.namespace, account.name), groups, account.uid, extra)


def _decoded(token: str, keys: Keys) -> Claims:
    """Return what a token says if one of our keys signed it."""
    import jwt

    try:
        key = keys.find(str(jwt.get_unverified_header(token).get("kid", "")))
        if key is None:
            raise BadToken("invalid signature, no keys found")
        # Only this algorithm: a token must not choose how it is verified. The times are ours to check.
        raw = jwt.decode(token, key, [ALGORITHM], options=_CHECKED)
        return msgspec.convert(raw, Claims)
    except (jwt.InvalidTokenError, msgspec.ValidationError):
        # Not chained: the cause could repeat a part of the token.
        raise BadToken(_FORGED) from None


def _unverified_issuer(token: str) -> str:
    import base64

    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Issuer).iss
    except (ValueError, msgspec.MsgspecError):
        return ""


class _Issuer(msgspec.Struct):
    iss: str = ""


def _gone(key: Key) -> str:
    if key.resource == "serviceaccounts":
        return f"serviceaccounts {quoted(key.name)} not found"
    return INVALIDATED


def _other(key: Key, uid: str, claimed: str) -> str:
    if key.resource == "serviceaccounts":
        return f"service account UID ({uid}) does not match claim ({claimed})"
    kind = key.resource.removesuffix("s")
    return f"{kind} UID ({uid}) does not match service account {kind} ref claim ({claimed})"


def _deleted(key: Key) -> str:
    if key.resource == "serviceaccounts":
        return f"service account {key.namespace}/{key.name} has been deleted"
    return INVALIDATED
