"""kcpassword: vectors of the cipher, the marker of a rejected password, and limits whose errors never show a password."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import kcpassword

VECTORS = [
    ("hello", "15ec3e4fbdbcddeaa3b91f"),
    ("1234567890", "4cbb6117e78aead29a891f"),
    # A password that fills its block gets another block, so that at least one NUL follows it.
    ("12345678901", "4cbb6117e78aead29a892e7d895223d2bcddeaa3b91f"),
    ("123456789012", "4cbb6117e78aead29a892e4f895223d2bcddeaa3b91f"),
]
REJECTED = bytes.fromhex("41fa3742bed9b9d4a3b91f")
PASSWORDS = st.text(
    st.characters(codec="utf-8", min_codepoint=0x20, exclude_characters="\x7f"), min_size=1
).filter(
    lambda text: len(text.encode()) <= kcpassword.MAX_BYTES and not text.startswith("<sealed>")
)


@pytest.mark.parametrize(("password", "contents"), VECTORS)
def test_known_vectors(password: str, contents: str) -> None:
    assert kcpassword.encode(Secret(password)).hex() == contents
    assert kcpassword.decode(bytes.fromhex(contents)) == Secret(password)


@given(PASSWORDS)
def test_passwords_round_trip_and_are_padded_to_whole_keys(password: str) -> None:
    contents = kcpassword.encode(Secret(password))

    assert kcpassword.decode(contents) == Secret(password)
    assert len(contents) % 11 == 0
    assert len(password.encode()) < len(contents) <= kcpassword.MAX_FILE_BYTES
    assert not kcpassword.is_rejected(contents)


def test_marker_of_a_rejected_password_is_recognized() -> None:
    assert kcpassword.is_rejected(REJECTED)
    assert kcpassword.is_rejected(REJECTED[:8])
    assert kcpassword.is_rejected(REJECTED + bytes(1000))


@pytest.mark.parametrize("contents", [b"", REJECTED[:7], b"<sealed>", bytes(11)])
def test_other_contents_are_not_rejected(contents: bytes) -> None:
    assert not kcpassword.is_rejected(contents)


def test_files_of_other_programs_are_decoded() -> None:
    """Some pad to twelve bytes, and some write no NUL after a password that fills its block."""
    unpadded = bytes.fromhex("4cbb6117e78aead29a892e")

    assert kcpassword.decode(unpadded) == Secret("12345678901")
    assert kcpassword.decode(bytes.fromhex("15ec3e4fbdbcddeaa3b91f7d")) == Secret("hello")
    assert kcpassword.decode(b"") == Secret("")


def test_invalid_utf8_is_decoded_without_an_error() -> None:
    assert "�" in kcpassword.decode(bytes([0x7D ^ 0xFF])).reveal()


def test_too_long_file_is_refused() -> None:
    assert kcpassword.decode(bytes(kcpassword.MAX_FILE_BYTES))

    with pytest.raises(BadConfiguration, match="/etc/kcpassword has"):
        kcpassword.decode(bytes(kcpassword.MAX_FILE_BYTES + 1))


@pytest.mark.parametrize(
    ("password", "problem"),
    [
        ("", "is empty"),
        ("<sealed>", "marker of a rejected password"),
        ("x" * 256, "longer than 255 bytes"),
        ("é" * 128, "longer than 255 bytes"),
        ("canary\0", "NUL"),
        ("canary\n", "newline"),
        ("canary\r", "newline"),
        ("canary\x03", "control character"),
        ("canary\x7f", "control character"),
        ("canary\ud800", "UTF-8"),
    ],
)
def test_impossible_password_is_refused_without_being_shown(password: str, problem: str) -> None:
    with pytest.raises(BadConfiguration, match=problem) as caught:
        kcpassword.encode(Secret(password))

    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_longest_password_is_accepted() -> None:
    longest = Secret("x" * kcpassword.MAX_BYTES)

    assert kcpassword.decode(kcpassword.encode(longest)) == longest
