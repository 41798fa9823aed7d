"""The accounts file: weights and limits of accounts, aliases of dispatch labels, priorities of labels; read again when it changes.

A file that becomes invalid while the server runs is reported, and the last valid content stays in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from bramley.base import log
from bramley.base.errors import BadConfiguration
from bramley.dispatch.fair_share import Policy

logger = log.get(__name__)

MAX_FILE_BYTES = 1024 * 1024
_CHECK_SECONDS = 2.0

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Account(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The share of one account: the login of a repository's owner."""

    weight: float = 1.0
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None


class AccountsFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The content of the file. An alias is a label of jobs; its value is the name of a pool."""

    accounts: dict[_Name, Account] = {}
    aliases: dict[_Name, _Name] = {}
    priorities: dict[_Name, int] = {}

    def policy(self) -> Policy:
        """Return the shares and priorities; logins and labels are compared in lower case."""
        accounts = {name.lower(): account for name, account in self.accounts.items()}
        if len(accounts) < len(self.accounts):
            raise BadConfiguration(f"accounts: {_repeated(self.accounts)} differ only in case")
        return Policy(
            weights={name: account.weight for name, account in accounts.items()},
            limits={
                name: account.limit
                for name, account in accounts.items()
                if account.limit is not None
            },
            priorities={label.lower(): value for label, value in self.priorities.items()},
        )

    def aliases_of(self, pool: str) -> tuple[str, ...]:
        """Return the labels that select a pool in addition to its dispatch label."""
        return tuple(label for label, name in self.aliases.items() if name == pool)


def _repeated(logins: Iterable[str]) -> str:
    by_name: dict[str, list[str]] = {}
    for login in logins:
        by_name.setdefault(login.lower(), []).append(login)
    return " and ".join(next(group for group in by_name.values() if len(group) > 1))


def read(path: Path) -> AccountsFile:
    """Return the content of a file; BadConfiguration names the field that is invalid."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadConfiguration(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise BadConfiguration(f"{path} has more than {MAX_FILE_BYTES} bytes")
    try:
        document: Any = yaml.safe_load(content)
        parsed = msgspec.convert(document if document is not None else {}, AccountsFile)
        parsed.policy()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The parser describes a problem in several lines.
        problem = " ".join(str(error).split())
        raise BadConfiguration(f"{path} is not valid YAML: {problem}") from error
    except msgspec.ValidationError as error:
        raise BadConfiguration(f"{path} is invalid: {error}") from error
    except BadConfiguration as error:
        raise BadConfiguration(f"{path}: {error}") from error
    return parsed


@dataclass(slots=True)
class Accounts:
    """The content in force; `on_change` is called after another one was read."""

    path: Path | None = None
    current: AccountsFile = field(default_factory=AccountsFile)
    on_change: Callable[[], None] = lambda: None
    # Whether the file on disk is in force, for the metric.
    is_valid: bool = True
    policy: Policy = field(default_factory=Policy)
    _seen: tuple[int, int, int] | None = None

    @classmethod
    def open(cls, path: Path | None) -> Accounts:
        """Read the file; raise BadConfiguration if it is invalid."""
        accounts = cls(path)
        if path is not None:
            accounts._seen = _version(path)
            accounts._use(read(path))
        return accounts

    async def run(self) -> None:
        """Read the file again whenever it changes, for ever."""
        while self.path is not None:
            await asyncio.sleep(_CHECK_SECONDS)
            self.refresh()

    def refresh(self) -> None:
        """Read the file if it has changed."""
        if self.path is None:
            return
        version = _version(self.path)
        if version == self._seen:
            return
        self._seen = version
        try:
            self._use(read(self.path))
        except BadConfiguration as error:
            self.is_valid = False
            logger.warning("Accounts file is invalid; keeping its last content", error=str(error))
            return
        logger.info("Read accounts file", path=str(self.path))
        self.on_change()

    def _use(self, content: AccountsFile) -> None:
        self.current, self.policy, self.is_valid = content, content.policy(), True


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
