from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.credentials import Credential, StaticCredentials, TokenFile, basic, bearer
from tests import virtual_time


def token_file(path: Path) -> TokenFile:
    return TokenFile(path, clock=virtual_time.clock())


def shown(credential: Credential) -> str:
    assert credential.authorization
    return credential.authorization.reveal()


async def test_a_token_file_is_read_again_once_a_minute(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    tokens = token_file(file)

    assert shown(await tokens.current()) == "Bearer one"
    file.write_text("two\n")
    await asyncio.sleep(59)
    assert shown(await tokens.current()) == "Bearer one"
    await asyncio.sleep(1)
    assert shown(await tokens.current()) == "Bearer two"


async def test_a_refused_token_is_compared_with_the_file_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    tokens = token_file(file)
    used = await tokens.current()

    assert not await tokens.refused(used)
    file.write_text("two")
    assert await tokens.refused(used)
    assert shown(await tokens.current()) == "Bearer two"


@pytest.mark.parametrize("broken", [None, b"", b"  \n", b"two\nlines", b"\xff\xfe"])
async def test_old_token_is_used_while_the_file_is_missing_or_invalid(
    tmp_path: Path, broken: bytes | None
) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    tokens = token_file(file)
    await tokens.current()

    file.unlink() if broken is None else file.write_bytes(broken)
    await asyncio.sleep(61)

    assert shown(await tokens.current()) == "Bearer one"


@pytest.mark.parametrize("broken", [None, b"", b"two\nlines", b"\xff\xfe"])
async def test_a_file_without_a_token_is_named(tmp_path: Path, broken: bytes | None) -> None:
    file = tmp_path / "token"
    if broken is not None:
        file.write_bytes(broken)

    with pytest.raises(errors.BadConfiguration, match=str(file)):
        await token_file(file).current()


async def test_static_credential_has_no_other() -> None:
    credential = Credential(bearer("one", "here"))
    fixed = StaticCredentials(credential)

    assert await fixed.current() == credential
    assert not await fixed.refused(credential)


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "a\r\nHost: evil", "ü"])
def test_token_that_is_no_valid_header_value_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(errors.BadConfiguration) as caught:
        bearer(token, "users[x].token")

    assert str(caught.value).startswith("users[x].token: ")
    assert not token or token not in str(caught.value)


def test_credentials_are_redacted_in_repr() -> None:
    assert basic("me", Secret("hunter2")).reveal() == "Basic bWU6aHVudGVyMg=="
    assert "hunter2" not in repr(Credential(bearer("hunter2", "here")))
    assert "bWU6" not in f"{Credential(basic('me', Secret('hunter2')))}"
