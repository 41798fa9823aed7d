"""The users and groups of a simulated Mac, their passwords, and the lock that too many wrong ones set.

All checks of passwords (sudo, the directory, SSH, loginwindow) are here, so every wrong one counts.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from enum import Enum
from typing import Any

GROUPS = {"wheel": 0, "staff": 20, "admin": 80}


class Verdict(Enum):
    """The result of a password check."""

    RIGHT = "right"
    WRONG = "wrong"
    LOCKED = "locked"
    UNKNOWN = "unknown"


def uid_of(state: Mapping[str, Any], name: str) -> int | None:
    """Return a user's uid; None if there is no such user."""
    user = state["users"].get(name)
    return None if user is None else int(user["uid"])


def name_of(state: Mapping[str, Any], uid: int) -> str | None:
    """Return the user with this uid; None if there is none."""
    return next((name for name, user in state["users"].items() if user["uid"] == uid), None)


def groups_of(state: Mapping[str, Any], name: str) -> list[str]:
    """Return a user's groups, the primary one first."""
    user = state["users"].get(name)
    return list(user["groups"]) if user else []


def home_of(state: Mapping[str, Any], name: str) -> str:
    """Return a user's home folder."""
    return str(state["users"][name]["home"])


def ids_of(state: Mapping[str, Any], owner: str) -> tuple[int, int]:
    """Return uid and gid of an owner as in `m1:staff`; LookupError with chown's message for an unknown name."""
    user, _, group = owner.partition(":")
    uid = int(user) if user.isdigit() else uid_of(state, user)
    gid = int(group) if group.isdigit() else GROUPS.get(group, 0 if not group else None)
    if uid is None:
        raise LookupError(f"{user}: illegal user name")
    if gid is None:
        raise LookupError(f"{group}: illegal group name")
    return uid, gid


def owner_by_ids(state: Mapping[str, Any], uid: int, gid: int) -> str:
    """Return an owner as in `m1:staff`; unknown ids stay numbers."""
    group = next((name for name, number in GROUPS.items() if number == gid), str(gid))
    return f"{name_of(state, uid) or uid}:{group}"


def owner_by_path(state: Mapping[str, Any], path: str) -> str:
    """Return the owner of a file without a recorded one: the user in a home folder, else root."""
    for name, user in state["users"].items():
        if name != "root" and f"{path}/".startswith(f"{user['home']}/"):
            return f"{name}:staff"
    return "root:wheel"


def is_password(state: Mapping[str, Any], name: str, password: str) -> bool:
    """Return whether this is a user's password, without counting; an account with `*` has none."""
    if state["users"][name]["password"] == "*":  # noqa: S105 - it stands for none
        return False
    return hmac.compare_digest(state["users"][name]["password"].encode(), password.encode())


def check(state: dict[str, Any], name: str, password: str, *, now: float) -> Verdict:
    """Check a password and count it: too many wrong ones in a row lock the account, for the right one, too."""
    user = state["users"].get(name)
    if user is None:
        return Verdict.UNKNOWN
    if user.get("locked_until_at", 0.0) > now:
        return Verdict.LOCKED
    if is_password(state, name, password):
        user["wrong_count"] = 0
        return Verdict.RIGHT
    user["wrong_count"] = user.get("wrong_count", 0) + 1
    settings = state["settings"]
    if user["wrong_count"] >= settings["lockout_after"]:
        user["locked_until_at"] = now + settings["lockout_seconds"]
        user["wrong_count"] = 0
    return Verdict.WRONG
