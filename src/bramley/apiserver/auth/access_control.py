"""Authentication, impersonation and authorization of one request, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from urllib.parse import unquote

from bramley.apiserver.apimachinery import status, users
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authenticator import Authenticator
from bramley.apiserver.auth.authorizer import Authorizer, refusal
from bramley.apiserver.http.exchange import Request

Header = tuple[bytes, bytes]

PREFIX = b"impersonate-"
_EXTRA = "extra-"
_AUTHENTICATION = "authentication.k8s.io"


def impersonated(user: User, headers: Iterable[Header], authorizer: Authorizer) -> User:
    """Return the user that a request acts as: its own, or the one in its `Impersonate-*` headers.

    Each of these headers needs the permission to `impersonate` what it names.
    """
    pairs = [_decoded(header) for header in headers if header[0].startswith(PREFIX)]
    if not pairs:
        return user
    name = next((value for key, value in pairs if key == "user"), "")
    if not name:
        raise status.internal("requested groups, extras or a uid without impersonating a user")
    for attributes in _required_permissions(user, name, pairs):
        authorizer.check(attributes)
    return _impersonated_user(name, pairs)


def _decoded(header: Header) -> tuple[str, str]:
    key = header[0].removeprefix(PREFIX).decode("latin-1")
    return key.lower(), header[1].decode("utf-8", "replace")


def _required_permissions(
    user: User, name: str, headers: list[tuple[str, str]]
) -> Iterator[Attributes]:
    core = partial(Attributes, user, "impersonate")
    authentication = partial(core, _AUTHENTICATION)
    account = users.split_account(name)
    if account is None:
        yield core(resource="users", name=name)
    else:
        yield core(resource="serviceaccounts", name=account[1], namespace=account[0])
    for key, value in headers:
        if key == "group":
            yield core(resource="groups", name=value)
        elif key == "uid":
            yield authentication(resource="uids", name=value)
        elif key.startswith(_EXTRA):
            extra = unquote(key.removeprefix(_EXTRA))
            yield authentication(resource="userextras", name=value, subresource=extra)


def _impersonated_user(name: str, headers: list[tuple[str, str]]) -> User:
    groups = [value for key, value in headers if key == "group"]
    account = users.split_account(name)
    if not groups and account is not None:
        groups = list(users.account_groups(account[0]))
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in headers:
        if key.startswith(_EXTRA):
            extra_key = unquote(key.removeprefix(_EXTRA))
            extra[extra_key] = (*extra.get(extra_key, ()), value)
    uid = next((value for key, value in headers if key == "uid"), "")
    return User(name, _with_default_group(name, groups), uid, extra)


def _with_default_group(name: str, groups: list[str]) -> tuple[str, ...]:
    """Return the groups with `system:authenticated` or `system:unauthenticated` added where neither is named."""
    if name == users.ANONYMOUS_NAME:
        missing = users.UNAUTHENTICATED not in groups
        return (*groups, users.UNAUTHENTICATED) if missing else tuple(groups)
    has_group = users.AUTHENTICATED in groups or users.UNAUTHENTICATED in groups
    return tuple(groups) if has_group else (*groups, users.AUTHENTICATED)


class AccessControl:
    """Sets a request's users and refuses what they may not do."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer

    def check(self, request: Request) -> Attributes | None:
        """Raise a 401 or 403; return the attributes that were authorized, None for `system:masters`, who may do everything."""
        # Set first: the audit log names the authenticated user of an impersonation that is refused.
        request.authenticated_user = user = self._authenticator.identify(request)
        request.user = user = impersonated(user, request.scope["headers"], self._authorizer)
        if user.is_master:
            return None
        attributes = Attributes.of(user, request.info)
        self._authorizer.check(attributes)
        return attributes

    def check_master(self, request: Request) -> None:
        """Raise a 401 or 403 unless the user is in `system:masters`, whatever roles grant."""
        attributes = self.check(request)
        if attributes is not None:
            raise refusal(attributes)

    def is_still_allowed(self, request: Request) -> bool:
        """Return whether a long-running request would still pass: its credential is valid and its permissions suffice."""
        try:
            self.check(request)
        except ApiError:
            return False
        return True
