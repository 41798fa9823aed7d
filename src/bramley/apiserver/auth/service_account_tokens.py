"""Tokens of ServiceAccounts: issued with a lifetime and audiences, bound to objects, and valid only while these exist.

A signature is verified once per token and cached; the times, the audiences, the account and the object that the token is
bound to are checked on every use. The messages of `BadToken` are those of kube-apiserver and contain no part of the token.
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
from bramley.apiserver.auth.signing_keys import ALGORITHM, SigningKeys
from bramley.apiserver.store.records import Key, Record
from bramley.apiserver.store.store import Store
from bramley.base.clock import Clock
from bramley.base.secret import Secret

if TYPE_CHECKING:
    from jwt.types import Options

ISSUER = "https://kubernetes.default.svc.cluster.local"
EXTRA = "authentication.kubernetes.io/"
INVALIDATED = "service account token has been invalidated"
# Clocks differ, and the users of a deleted object get a grace period.
LEEWAY = timedelta(minutes=1)
_CACHED_TOKENS = 4096
# Characters; a longer token, with very many audiences, is verified each time instead.
_MAX_CACHED_LENGTH = 4096
_BAD_SIGNATURE = "invalid signature"
_DECODE_OPTIONS: Options = {
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
    """A token that is not accepted; the text is the reason."""


class Reference(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An object in a token's claims."""

    name: str = ""
    uid: str = ""


class _Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: str = ""
    serviceaccount: Reference = Reference()
    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None


class Claims(msgspec.Struct, frozen=True):
    """The claims of a token."""

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
    """The issuer, the default audiences, and the longest lifetime of a token."""

    issuer: str = ISSUER
    audiences: tuple[str, ...] = (ISSUER,)
    longest: timedelta = timedelta(days=365)


class Bound(msgspec.Struct, frozen=True):
    """The object that a token is bound to: a Pod, with its Node, or a Secret or a Node."""

    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None


class _VerifiedToken(msgspec.Struct):
    """A token whose signature was verified, and the records of its objects that were last found valid."""

    claims: Claims
    user: User
    valid_records: dict[Key, Record] = {}


class ServiceAccountTokens:
    """Issues tokens of ServiceAccounts and finds their owners."""

    def __init__(
        self, store: Store, keys: SigningKeys, *, clock: Clock, settings: Settings | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._verified_tokens: dict[bytes, _VerifiedToken] = {}
        self._cached_for_keys = 0
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
        """Sign with a new key from now on; the previous one verifies until its last token has expired, with `void_old` no longer."""
        self.keys.rotate(until=self._clock.now() + self.settings.longest + LEEWAY)
        if void_old:
            self.keys.retire()

    def owner(self, token: str) -> User | None:
        """Return the owner of a token, None if it is not valid for this API."""
        try:
            return self.review(token, self.settings.audiences)[0]
        except BadToken:
            return None

    def has_own_issuer(self, token: str) -> bool:
        """Return whether a string has the form of a token that claims to be from this issuer."""
        return _unverified_issuer(token) == self.settings.issuer

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]]:
        """Return the owner of a token and the audiences that it is valid for; raise BadToken if there are none."""
        verified = self._verified(token)
        claims = verified.claims
        shared = [each for each in audiences if each in claims.aud]
        if not shared:
            message = f"token audiences {texts(claims.aud)} is invalid for the target audiences"
            raise BadToken(f"{message} {texts(audiences)}")
        now = self._clock.now()
        _check_times(claims, now)
        self._check_objects(verified, now)
        return verified.user, shared

    def _verified(self, token: str) -> _VerifiedToken:
        # A token of a key that was retired must not be accepted from the cache.
        if self._cached_for_keys != self.keys.changes:
            self._verified_tokens, self._cached_for_keys = {}, self.keys.changes
        if not token.isascii():
            raise BadToken(_BAD_SIGNATURE)
        digest = hashlib.sha256(token.encode()).digest()
        verified = self._verified_tokens.get(digest)
        if verified is None:
            claims = _decoded(token, self.keys)
            if claims.iss != self.settings.issuer:
                raise BadToken(f"token issuer {quoted(claims.iss)} is invalid")
            verified = _VerifiedToken(claims, _user(claims))
            # Verifying may have loaded the keys, which counts as a change of them.
            self._cached_for_keys = self.keys.changes
            if len(token) > _MAX_CACHED_LENGTH:
                return verified
            if len(self._verified_tokens) >= _CACHED_TOKENS:
                del self._verified_tokens[next(iter(self._verified_tokens))]
            self._verified_tokens[digest] = verified
        return verified

    def _check_objects(self, token: _VerifiedToken, now: datetime) -> None:
        claim = token.claims.kubernetes
        home, account = claim.namespace, claim.serviceaccount
        self._check_object(token, Key("serviceaccounts", home, account.name), account.uid, now)
        if claim.secret is not None:
            self._check_object(
                token, Key("secrets", home, claim.secret.name), claim.secret.uid, now
            )
        if claim.pod is not None:
            self._check_object(token, Key("pods", home, claim.pod.name), claim.pod.uid, now)
        elif claim.node is not None:
            self._check_object(token, Key("nodes", "", claim.node.name), claim.node.uid, now)

    def _check_object(self, token: _VerifiedToken, key: Key, uid: str, now: datetime) -> None:
        record = self._store.get(key)
        if record is not None and token.valid_records.get(key) is record:
            return
        if record is None:
            raise BadToken(_not_found_message(key))
        meta: _Metadata | None = None
        with self._store.damage.skip_unreadable(record):
            meta = msgspec.json.decode(record.body, type=_Object).metadata
        if meta is None:
            raise BadToken(_not_found_message(key))
        if meta.uid != uid:
            raise BadToken(_uid_mismatch_message(key, meta.uid, uid))
        # Cached only until its deletion begins: then the result depends on the time.
        if meta.deletion_timestamp is None:
            token.valid_records[key] = record
        elif meta.deletion_timestamp < now - LEEWAY:
            raise BadToken(_deleted_message(key))


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


def _decoded(token: str, keys: SigningKeys) -> Claims:
    """Return the claims of a token that one of our keys signed."""
    import jwt

    try:
        key = keys.find(str(jwt.get_unverified_header(token).get("kid", "")))
        if key is None:
            raise BadToken("invalid signature, no keys found")
        # Only this algorithm: a token must not choose how it is verified. `_check_times` checks the times.
        raw = jwt.decode(token, key, [ALGORITHM], options=_DECODE_OPTIONS)
        return msgspec.convert(raw, Claims)
    except (jwt.InvalidTokenError, msgspec.ValidationError):
        # Not chained: the cause could contain a part of the token.
        raise BadToken(_BAD_SIGNATURE) from None


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


def _not_found_message(key: Key) -> str:
    if key.resource == "serviceaccounts":
        return f"serviceaccounts {quoted(key.name)} not found"
    return INVALIDATED


def _uid_mismatch_message(key: Key, uid: str, claimed: str) -> str:
    if key.resource == "serviceaccounts":
        return f"service account UID ({uid}) does not match claim ({claimed})"
    kind = key.resource.removesuffix("s")
    return f"{kind} UID ({uid}) does not match service account {kind} ref claim ({claimed})"


def _deleted_message(key: Key) -> str:
    if key.resource == "serviceaccounts":
        return f"service account {key.namespace}/{key.name} has been deleted"
    return INVALIDATED
