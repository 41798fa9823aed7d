"""Acting as somebody else: the `Impersonate-*` headers, each of which needs the right to `impersonate` what it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from bramley.apiserver.apimachinery import status, users
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authorizer import Authorizer

Header = tuple[bytes, bytes]

PREFIX = b"impersonate-"
_EXTRA = "extra-"
_AUTHENTICATION = "authentication.k8s.io"


def acting(user: User, headers: Iterable[Header], authorizer: Authorizer) -> User:
    """Return who a request is to be answered for: its user, or whom that user may and wants to be taken for."""
    wishes = [_wish(header) for header in headers if header[0].startswith(PREFIX)]
    if not wishes:
        return user
    name = next((value for key, value in wishes if key == "user"), "")
    if not name:
        raise _without_user()
    for asked in _needed(user, name, wishes):
        authorizer.check(asked)
    return _taken_for(name, wishes)


def _wish(header: Header) -> tuple[str, str]:
    key = header[0].removeprefix(PREFIX).decode("latin-1")
    return key.lower(), header[1].decode("utf-8", "replace")


def _needed(user: User, name: str, wishes: list[tuple[str, str]]) -> Iterator[Attributes]:
    account = users.split_account(name)
    if account is None:
        yield _impersonation(user, "users", name)
    else:
        yield _impersonation(user, "serviceaccounts", account[1], namespace=account[0])
    for key, value in wishes:
        if key == "group":
            yield _impersonation(user, "groups", value)
        elif key == "uid":
            yield _impersonation(user, "uids", value, group=_AUTHENTICATION)
        elif key.startswith(_EXTRA):
            extra = unquote(key.removeprefix(_EXTRA))
            yield _impersonation(user, "userextras", value, extra, group=_AUTHENTICATION)


def _impersonation(
    user: User,
    resource: str,
    name: str,
    subresource: str = "",
    *,
    group: str = "",
    namespace: str = "",
) -> Attributes:
    return Attributes(
        user,
        "impersonate",
        group,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _taken_for(name: str, wishes: list[tuple[str, str]]) -> User:
    groups = [value for key, value in wishes if key == "group"]
    account = users.split_account(name)
    if not groups and account is not None:
        groups = list(users.account_groups(account[0]))
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in wishes:
        if key.startswith(_EXTRA):
            extra_key = unquote(key.removeprefix(_EXTRA))
            extra[extra_key] = (*extra.get(extra_key, ()), value)
    uid = next((value for key, value in wishes if key == "uid"), "")
    return User(name, _with_default(name, groups), uid, extra)


def _with_default(name: str, groups: list[str]) -> tuple[str, ...]:
    """Return the groups with the one that says whether the user proved who it is, unless that was asked for."""
    if name == users.ANONYMOUS_NAME:
        missing = users.UNAUTHENTICATED not in groups
        return (*groups, users.UNAUTHENTICATED) if missing else tuple(groups)
    said = users.AUTHENTICATED in groups or users.UNAUTHENTICATED in groups
    return tuple(groups) if said else (*groups, users.AUTHENTICATED)


def _without_user() -> ApiError:
    return status.internal("requested groups, extras or a uid without impersonating a user")
