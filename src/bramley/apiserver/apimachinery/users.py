"""Users: the names and groups that requests, bindings and tokens speak of."""

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
    """Who a request comes from."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_master(self) -> bool:
        """Tell whether the user may do everything."""
        return MASTERS in self.groups

    @property
    def is_anonymous(self) -> bool:
        """Tell whether nobody vouches for the user."""
        return self.name == ANONYMOUS_NAME or UNAUTHENTICATED in self.groups


ANONYMOUS = User(ANONYMOUS_NAME, (UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """Return a user with the group that everybody has who proved who they are."""
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
    """Return the namespace and the name in a ServiceAccount's user name, None for another user's."""
    from bramley.apiserver.apimachinery import names

    if not user_name.startswith(ACCOUNT_PREFIX):
        return None
    parts = user_name.removeprefix(ACCOUNT_PREFIX).split(":")
    if len(parts) != 2 or names.label(parts[0]) or names.subdomain(parts[1]):
        return None
    return parts[0], parts[1]
