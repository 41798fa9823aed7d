"""Organisations and repositories, which own runners, with names that are safe in the path of a request."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bramley.base import errors

# Names of enterprise-managed users contain an underscore.
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_REPOSITORY = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class Organisation:
    """An organisation."""

    login: str

    def __post_init__(self) -> None:
        _check("organisation", self.login, _LOGIN)

    @property
    def path(self) -> str:
        """Return the beginning of the paths of its calls."""
        return f"/orgs/{self.login}"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of an organisation or a user."""

    owner: str
    name: str

    def __post_init__(self) -> None:
        _check("owner", self.owner, _LOGIN)
        _check("repository", self.name, _REPOSITORY)

    @property
    def path(self) -> str:
        """Return the beginning of the paths of its calls."""
        return f"/repos/{self.owner}/{self.name}"


RunnerOwner = Organisation | Repository


def _check(what: str, name: str, form: re.Pattern[str]) -> None:
    if form.fullmatch(name) is None:
        raise errors.BadRequest(f"{name[:100]!r} is not a valid name of a GitHub {what}")
