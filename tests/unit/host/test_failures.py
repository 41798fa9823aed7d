"""What is told of a command that failed: enough to act on, bounded, and no secret in any of its forms."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.secret import Secret, SecretBytes
from bramley.host import failures
from bramley.host.commands import Folder, Run, Write

CANARY = "canary-31337 with a tail"


def test_the_error_names_host_purpose_code_and_the_end_of_what_was_said() -> None:
    error = failures.failed(
        "mac: load the rules", 3, b"pfctl:\x1b[31m syntax\r\n  error\n", secrets=()
    )

    assert str(error) == "mac: load the rules: failed with code 3: pfctl: [31m syntax error"


def test_a_program_that_said_nothing_is_told_so() -> None:
    assert str(failures.failed("mac: x", 1, b"", secrets=())).endswith(": it said nothing")


def test_a_sudo_that_asks_for_a_password_is_told_with_what_must_come_first() -> None:
    told = str(failures.failed("mac: x", 1, b"sudo: a password is required\n", secrets=()))

    assert told.endswith("; the step sudo must come first, with the password of this user")


def test_only_the_end_of_a_long_text_is_told() -> None:
    told = failures.shown(b"begin " + b"x" * 5000 + b" end", secrets=())

    assert len(told) <= 601
    assert told.startswith("…")
    assert told.endswith(" end")


CONTENT = f"first line\n  {CANARY}\nlast line\n"


@pytest.mark.parametrize(
    "command",
    [
        Run(argv=("x",), purpose="p", stdin=Secret(CANARY)),
        Run(argv=("x",), purpose="p", stdin=CANARY.encode()),
        Run(argv=("x",), purpose="p", sudo_password=Secret(CANARY)),
        Write(path="/x", content=Secret(CONTENT), purpose="p"),
        Write(path="/x", content=SecretBytes(CONTENT.encode()), purpose="p"),
        Write(path="/x", content=CONTENT.encode(), purpose="p"),
        Write(path="/x", content=b"", purpose="p", sudo_password=Secret(CANARY)),
    ],
)
def test_every_secret_of_a_command_is_hidden_also_where_only_a_line_of_it_is_said(
    command: Run | Write,
) -> None:
    told = failures.shown(f"bad: {CANARY}!".encode(), secrets=failures.secrets_of(command))

    assert told == "bad: [hidden]!"


def test_a_secret_is_hidden_in_the_form_that_it_travels_in() -> None:
    encoded = base64.b64encode(CANARY.encode())

    assert failures.shown(encoded, secrets=[Secret(CANARY)]) == "[hidden]"


def test_other_commands_have_no_secrets() -> None:
    assert failures.secrets_of(Folder(path="/x", purpose="p")) == ()


@given(st.binary(max_size=3000), st.text(min_size=1, max_size=50))
def test_whatever_is_said_is_told_in_one_bounded_line_without_the_secret(
    said: bytes, secret: str
) -> None:
    told = failures.shown(
        said + secret.encode("utf-8", "surrogatepass") + said, secrets=[Secret(secret)]
    )

    assert len(told) <= 601
    assert "\n" not in told
