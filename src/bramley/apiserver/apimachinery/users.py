"""Users: the names and groups in requests, bindings and tokens."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS_NAME = "system:anonymous"
SERVICE_ACCOUNTS = "system:serviceaccounts"

ACCOUNT_PREFIX = "system:serviceaccount:"


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_master(self) -> bool:
        """Return whether the user may do everything."""
        return MASTERS in self.groups

    @property
    def is_anonymous(self) -> bool:
        """Return whether the user is not authenticated."""
        return self.name == ANONYMOUS_NAME or UNAUTHENTICATED in self.groups


ANONYMOUS = User(ANONYMOUS_NAME, (UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """Return a user with the group of all authenticated users."""
    if AUTHENTICATED in user.groups or user.is_anonymous:
        return user
    return msgspec.structs.replace(user, groups=(*user.groups, AUTHENTICATED))


def account_name(namespace: str, name: str) -> str:
    """Return the user name of a ServiceAccount."""
    return f"{ACCOUNT_PREFIX}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups that the ServiceAccounts of a namespace are in."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")


def split_account(user_name: str) -> tuple[str, str] | None:
    """Return the namespace and the name of a ServiceAccount's user name, None for other users."""
    from bramley.apiserver.apimachinery import names

    if not user_name.startswith(ACCOUNT_PREFIX):
        return None
    parts = user_name.removeprefix(ACCOUNT_PREFIX).split(":")
    if len(parts) != 2 or names.label(parts[0]) or names.subdomain(parts[1]):
        return None
    return parts[0], parts[1]
