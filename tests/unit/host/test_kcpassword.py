"""kcpassword: the vectors of the cipher, the marker of a wrong password, and bounds that never tell a password."""

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
    # Two zeros of padding would not do: a password that fills its block gets another one.
    ("12345678901", "4cbb6117e78aead29a892e7d895223d2bcddeaa3b91f"),
    ("123456789012", "4cbb6117e78aead29a892e4f895223d2bcddeaa3b91f"),
]
SEALED = bytes.fromhex("41fa3742bed9b9d4a3b91f")
PASSWORDS = st.text(
    st.characters(codec="utf-8", min_codepoint=0x20, exclude_characters="\x7f"), min_size=1
).filter(lambda text: len(text.encode()) <= kcpassword.LONGEST and not text.startswith("<sealed>"))


@pytest.mark.parametrize(("password", "contents"), VECTORS)
def test_a_password_becomes_the_bytes_that_loginwindow_reads(password: str, contents: str) -> None:
    assert kcpassword.encode(Secret(password)).hex() == contents
    assert kcpassword.decode(bytes.fromhex(contents)) == Secret(password)


@given(PASSWORDS)
def test_every_password_comes_back_and_is_padded_to_whole_keys(password: str) -> None:
    contents = kcpassword.encode(Secret(password))

    assert kcpassword.decode(contents) == Secret(password)
    assert len(contents) % 11 == 0
    assert len(password.encode()) < len(contents) <= kcpassword.LONGEST_FILE
    assert not kcpassword.is_sealed(contents)


def test_the_marker_of_a_wrong_password_is_known() -> None:
    assert kcpassword.is_sealed(SEALED)
    assert kcpassword.is_sealed(SEALED[:8])
    assert kcpassword.is_sealed(SEALED + bytes(1000))


@pytest.mark.parametrize("contents", [b"", SEALED[:7], b"<sealed>", bytes(11)])
def test_other_contents_are_not_sealed(contents: bytes) -> None:
    assert not kcpassword.is_sealed(contents)


def test_files_of_other_programs_are_read_too() -> None:
    """Some pad to twelve bytes, and some write no NUL at all behind a password that fills its block."""
    unpadded = bytes.fromhex("4cbb6117e78aead29a892e")

    assert kcpassword.decode(unpadded) == Secret("12345678901")
    assert kcpassword.decode(bytes.fromhex("15ec3e4fbdbcddeaa3b91f7d")) == Secret("hello")
    assert kcpassword.decode(b"") == Secret("")


def test_bytes_that_are_no_text_are_no_password_and_no_error() -> None:
    assert "�" in kcpassword.decode(bytes([0x7D ^ 0xFF])).reveal()


def test_a_file_that_is_too_long_is_refused() -> None:
    assert kcpassword.decode(bytes(kcpassword.LONGEST_FILE))

    with pytest.raises(BadConfiguration, match="/etc/kcpassword has"):
        kcpassword.decode(bytes(kcpassword.LONGEST_FILE + 1))


@pytest.mark.parametrize(
    ("password", "told"),
    [
        ("", "is empty"),
        ("<sealed>", "nobody tells"),
        ("x" * 256, "longer than 255 bytes"),
        ("é" * 128, "longer than 255 bytes"),
        ("canary\0", "NUL"),
        ("canary\n", "end of a line"),
        ("canary\r", "end of a line"),
        ("canary\x03", "control character"),
        ("canary\x7f", "control character"),
        ("canary\ud800", "UTF-8"),
    ],
)
def test_a_password_that_cannot_work_is_refused_without_being_told(
    password: str, told: str
) -> None:
    with pytest.raises(BadConfiguration, match=told) as caught:
        kcpassword.encode(Secret(password))

    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_the_longest_password_is_taken() -> None:
    longest = Secret("x" * kcpassword.LONGEST)

    assert kcpassword.decode(kcpassword.encode(longest)) == longest
