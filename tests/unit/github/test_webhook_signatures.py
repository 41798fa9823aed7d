from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.secret import Secret
from bramley.github import webhook_signatures

BODY = b"Hello, World!"
SECRET = Secret("It's a Secret to Everybody")
# The example of GitHub's documentation.
HEADER = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def test_signature_of_the_documentation() -> None:
    assert webhook_signatures.signature(BODY, SECRET) == HEADER
    assert webhook_signatures.is_valid(BODY, HEADER, [SECRET])


def test_both_secrets_of_a_rotation_are_accepted() -> None:
    assert webhook_signatures.is_valid(BODY, HEADER, [Secret("new"), SECRET])
    assert webhook_signatures.is_valid(BODY, HEADER, [SECRET, Secret("new")])
    assert not webhook_signatures.is_valid(BODY, HEADER, [Secret("new"), Secret("newer")])


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        HEADER.removeprefix("sha256="),
        HEADER.replace("sha256", "sha1"),
        HEADER[:-1],
        HEADER + "0",
        HEADER.upper(),
        HEADER + "\n",
        "sha256=" + "é" * 64,
    ],
)
def test_missing_or_malformed_header_is_refused(header: str | None) -> None:
    assert not webhook_signatures.is_valid(BODY, header, [SECRET])


def test_without_a_secret_nothing_is_valid() -> None:
    empty = Secret("")

    assert not webhook_signatures.is_valid(BODY, HEADER, [])
    assert not webhook_signatures.is_valid(BODY, webhook_signatures.signature(BODY, empty), [empty])


@given(st.binary(min_size=1, max_size=200), st.integers(min_value=0), st.integers(0, 7))
def test_any_changed_bit_of_the_body_is_noticed(body: bytes, place: int, bit: int) -> None:
    changed = bytearray(body)
    changed[place % len(body)] ^= 1 << bit
    header = webhook_signatures.signature(body, SECRET)

    assert webhook_signatures.is_valid(body, header, [SECRET])
    assert not webhook_signatures.is_valid(bytes(changed), header, [SECRET])
