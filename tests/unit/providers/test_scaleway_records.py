"""Passwords, keys and names of the grammar, from what Scaleway returns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bramley.base import errors
from bramley.providers.provider import HostRef, HostState, checked_name, pool_name
from bramley.providers.scaleway_records import host, key_material, sudo_password


@pytest.mark.parametrize(
    ("password", "vnc_url", "expected"),
    [
        ("plain", "vnc://m1:other@198.51.100.7:59010", "plain"),
        ("", "vnc://m1:p%40ss%2Fword@198.51.100.7:59010", "p@ss/word"),
        ("<sealed>", "vnc://m1:p%25@198.51.100.7", "p%"),
        (None, "vnc://m1:word@198.51.100.7", "word"),
        ("<sealed>", "vnc://m1:%3Csealed%3E@198.51.100.7", None),
        ("<sealed>", "vnc://m1:<sealed>@198.51.100.7", None),
        ("<sealed>", "vnc://m1@198.51.100.7", None),
        ("<sealed>", "vnc://[", None),
        ("<sealed>", "", None),
        ("", None, None),
    ],
)
def test_password_of_the_api_or_else_of_the_vnc_url(
    password: str | None, vnc_url: str | None, expected: str | None
) -> None:
    found = sudo_password(SimpleNamespace(sudo_password=password, vnc_url=vnc_url))

    assert (None if found is None else found.reveal()) == expected


@pytest.mark.parametrize(
    ("status", "state"),
    [("locked", HostState.FAILED), ("updating", HostState.BUSY), ("new_word", HostState.BUSY)],
)
def test_state_of_other_statuses(status: str, state: HostState) -> None:
    server = SimpleNamespace(
        id="a", name="n", type_="t", os=None, status=status, delivered=True, deletion_scheduled=None
    )

    found = host(server, "z")

    assert (found.state, found.status, found.os_names) == (state, status, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ssh-ed25519 AAAA", ("ssh-ed25519", "AAAA")),
        (" ssh-ed25519  AAAA me@host\n", ("ssh-ed25519", "AAAA")),
        ("AAAA", None),
        ("", None),
    ],
)
def test_keys_are_compared_without_their_comment(
    text: str, expected: tuple[str, str] | None
) -> None:
    assert key_material(text) == expected


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a/b", "a%2fb", "a?b", "a\n", "-a", "a b", "é", "x" * 129]
)
def test_unsafe_zones_and_ids_are_refused(text: str) -> None:
    with pytest.raises(errors.InvalidSpec):
        HostRef("fr-par-1", text)
    with pytest.raises(errors.InvalidSpec):
        HostRef(text, "a")


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-a", "a\n", "é", "x" * 129])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(errors.InvalidSpec):
        checked_name(name)


def test_name_in_the_pool_needs_a_prefix() -> None:
    assert pool_name("tuist-pool-", HostRef("z", "a-b")) == "tuist-pool-a-b"
    with pytest.raises(errors.InvalidSpec):
        pool_name("", HostRef("z", "a"))
