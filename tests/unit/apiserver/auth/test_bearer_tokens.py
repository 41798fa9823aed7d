from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from bramley.apiserver.auth.bearer_tokens import FILE, Tokens, User
from bramley.base.errors import BadConfiguration


def test_issued_token_identifies_its_user(tmp_path: Path) -> None:
    tokens = Tokens.open(tmp_path)

    token = tokens.issue("ada", ("engineers",))

    user = tokens.identify(token.reveal())
    assert user is not None
    assert (user.name, user.groups) == ("ada", ("engineers",))
    assert user.uid


@pytest.mark.parametrize("guess", [None, "", "wrong", "x" * 10_000, "\udcff", "é"])
def test_other_tokens_are_rejected(guess: str | None, tmp_path: Path) -> None:
    tokens = Tokens.open(tmp_path)
    tokens.issue("ada")

    assert tokens.identify(guess) is None


def test_token_works_after_a_restart(tmp_path: Path) -> None:
    token = Tokens.open(tmp_path).issue("ada")

    user = Tokens.open(tmp_path).identify(token.reveal())

    assert user == Tokens.open(tmp_path).identify(token.reveal())
    assert user is not None


def test_file_holds_hashes_and_no_token_and_is_private(tmp_path: Path) -> None:
    token = Tokens.open(tmp_path).issue("ada").reveal()

    content = (tmp_path / FILE).read_text()

    assert token not in content
    assert len(json.loads(content)["tokens"][0]["sha256"]) == 64
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_tokens_have_256_random_bits(tmp_path: Path) -> None:
    tokens = Tokens.open(tmp_path)

    issued = {tokens.issue(f"user-{index}").reveal() for index in range(50)}

    assert len(issued) == 50
    assert all(len(one) == 43 for one in issued)  # 32 bytes in URL-safe base64


def test_new_token_invalidates_the_former_one_of_the_same_user(tmp_path: Path) -> None:
    tokens = Tokens.open(tmp_path)
    first, other = tokens.issue("ada"), tokens.issue("grace")

    second = tokens.issue("ada")

    assert tokens.identify(first.reveal()) is None
    assert tokens.identify(second.reveal())
    assert tokens.identify(other.reveal())


def test_revoked_token_stays_invalid_after_a_restart(tmp_path: Path) -> None:
    tokens = Tokens.open(tmp_path)
    token = tokens.issue("ada")

    assert tokens.revoke("ada")

    assert tokens.identify(token.reveal()) is None
    assert Tokens.open(tmp_path).identify(token.reveal()) is None
    assert not tokens.revoke("ada")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tokens": 3}', b"\xff\xfe"])
def test_damaged_file_is_refused_with_advice(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)

    with pytest.raises(BadConfiguration, match=r"is damaged .* remove it to void all tokens"):
        Tokens.open(tmp_path)


def test_file_of_a_later_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"version": 2, "tokens": []}')

    with pytest.raises(BadConfiguration, match="has version 2"):
        Tokens.open(tmp_path)


def test_token_that_cannot_be_stored_is_not_issued(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "missing" / "\0bad", {})

    with pytest.raises((BadConfiguration, ValueError)):
        tokens.issue("ada")

    assert tokens._entries == {}


def test_tokens_in_memory_need_no_folder() -> None:
    tokens = Tokens.in_memory()

    token = tokens.issue("ada", ("a", "b"))

    assert isinstance(tokens.identify(token.reveal()), User)
