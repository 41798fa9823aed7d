"""The error of a failed command: actionable, bounded, and without any form of a secret."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.secret import Secret, SecretBytes
from bramley.host import connection
from bramley.host.commands import Folder, Run, Write

CANARY = "canary-31337 with a tail"


def test_error_names_host_purpose_code_and_the_end_of_the_output() -> None:
    error = connection.command_failed(
        "mac: load the rules", 3, b"pfctl:\x1b[31m syntax\r\n  error\n", secrets=()
    )

    assert str(error) == "mac: load the rules: failed with code 3: pfctl: [31m syntax error"


def test_missing_output_is_reported() -> None:
    assert str(connection.command_failed("mac: x", 1, b"", secrets=())).endswith(": no output")


def test_sudo_password_prompt_is_reported_with_the_required_step() -> None:
    tail = str(
        connection.command_failed("mac: x", 1, b"sudo: a password is required\n", secrets=())
    )

    assert tail.endswith("; the step sudo must come first, with the password of this user")


def test_long_output_is_truncated_to_its_end() -> None:
    tail = connection.redacted_tail(b"begin " + b"x" * 5000 + b" end", secrets=())

    assert len(tail) <= 601
    assert tail.startswith("…")
    assert tail.endswith(" end")


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
def test_secrets_are_hidden_also_if_only_one_line_is_printed(command: Run | Write) -> None:
    tail = connection.redacted_tail(
        f"bad: {CANARY}!".encode(), secrets=connection.secrets_of(command)
    )

    assert tail == "bad: [hidden]!"


def test_base64_form_of_a_secret_is_hidden() -> None:
    encoded = base64.b64encode(CANARY.encode())

    assert connection.redacted_tail(encoded, secrets=[Secret(CANARY)]) == "[hidden]"


def test_other_commands_have_no_secrets() -> None:
    assert connection.secrets_of(Folder(path="/x", purpose="p")) == ()


@given(st.binary(max_size=3000), st.text(min_size=1, max_size=50))
def test_any_output_becomes_one_bounded_line_without_the_secret(output: bytes, secret: str) -> None:
    tail = connection.redacted_tail(
        output + secret.encode("utf-8", "surrogatepass") + output, secrets=[Secret(secret)]
    )

    assert len(tail) <= 601
    assert "\n" not in tail
