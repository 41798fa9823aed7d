"""The accounts file: read again when it changes; an invalid one keeps the last content."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration
from bramley.dispatch.accounts import MAX_FILE_BYTES, Accounts, read

VALID = (
    "accounts: {Acme: {weight: 2, limit: 5}}\naliases: {xcode: macos}\npriorities: {Urgent: 3}\n"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "accounts.yaml"
    file.write_text(VALID)
    return file


def test_names_are_compared_in_lower_case(path: Path) -> None:
    accounts = Accounts.open(path)

    assert accounts.policy.weights == {"acme": 2}
    assert accounts.policy.limits == {"acme": 5}
    assert accounts.policy.priority(["URGENT"]) == 3
    assert accounts.current.aliases_of("macos") == ("xcode",)
    assert accounts.current.aliases_of("other") == ()


def test_empty_file_has_the_defaults(path: Path) -> None:
    path.write_text("")

    assert Accounts.open(path).policy == Accounts().policy


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("accounts: {acme: {weight: 0}}", "the weight of account acme"),
        ("accounts: {acme: {weight: .nan}}", "the weight of account acme"),
        ("accounts: {acme: {limit: -1}}", "limit"),
        ("accounts: {acme: {wieght: 1}}", "wieght"),
        ("acounts: {}", "acounts"),
        ("accounts: {Acme: {weight: 2}, acme: {}}", "accounts: Acme and acme differ only in case"),
        ("priorities: {urgent: 101}", "the priority of label urgent"),
        ("aliases: {xcode: ''}", "aliases"),
        ("- a list", "Expected `object`"),
        ("{", "not valid YAML"),
        ("\x00", "not valid YAML"),
        ("#" * (MAX_FILE_BYTES + 1), "more than"),
    ],
)
def test_invalid_file_is_refused_with_its_path_and_field(
    path: Path, content: str, message: str
) -> None:
    path.write_text(content)
    with pytest.raises(BadConfiguration) as raised:
        read(path)

    assert str(path) in str(raised.value)
    assert message in str(raised.value)


async def test_changed_file_is_read_again(path: Path) -> None:
    accounts, changes = Accounts.open(path), []
    accounts.on_change = lambda: changes.append(dict(accounts.policy.weights))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(accounts.run())
        await asyncio.sleep(10)
        assert changes == []
        # Replaced by a rename, as ConfigMap volumes and editors do.
        other = path.with_suffix(".new")
        other.write_text("accounts: {jane: {weight: 4}}")
        other.replace(path)
        await asyncio.sleep(10)
        running.cancel()

    assert changes == [{"jane": 4}]


@pytest.mark.parametrize("content", ["{", None], ids=["invalid", "deleted"])
def test_invalid_or_deleted_file_keeps_the_last_content_until_it_is_repaired(
    path: Path, content: str | None
) -> None:
    accounts = Accounts.open(path)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    accounts.refresh()
    assert accounts.policy.weights == {"acme": 2}
    assert not accounts.is_valid

    path.write_text("accounts: {acme: {weight: 3}}")
    accounts.refresh()
    assert accounts.policy.weights == {"acme": 3}
    assert accounts.is_valid
