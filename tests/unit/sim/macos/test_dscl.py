"""dscl of a simulated Mac: whether a password is right, asked at its prompt, and what the directory says when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sim.macos.macs import PASSWORD, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_right_password_at_the_prompt_is_answered_with_silence(bench: Bench) -> None:
    said = bench.run("dscl", ".", "-authonly", "m1", stdin=f"{PASSWORD}\n", on_terminal=True)

    assert (said.code, said.out, said.err) == (0, "Password: \n", "")


def test_a_wrong_password_is_eDSAuthFailed(bench: Bench) -> None:  # noqa: N802 - the directory's own word
    said = bench.run("dscl", ".", "-authonly", "m1", stdin="wrong\n", on_terminal=True)

    # A shell sees the last eight bits of 14090.
    assert said.code == 10
    assert "Authentication for node /Local/Default failed. (-14090, eDSAuthFailed)\n" in said.out
    assert said.err == "<dscl_cmd> DS Error: -14090 (eDSAuthFailed)\n"


def test_passwordless_sudo_does_not_make_a_wrong_password_right(bench: Bench) -> None:
    bench.let_sudo()

    assert bench.run("dscl", ".", "-authonly", "m1", "wrong").code == 10


def test_wrong_passwords_lock_the_account(bench: Bench) -> None:
    for _ in range(5):
        bench.run("dscl", ".", "-authonly", "m1", "wrong")

    said = bench.run("dscl", ".", "-authonly", "m1", PASSWORD)

    assert said.code == 14167 % 256
    assert "eDSAuthAccountDisabled" in said.err


def test_wrong_passwords_of_sudo_and_the_directory_are_counted_together(bench: Bench) -> None:
    for _ in range(3):
        bench.run("dscl", ".", "-authonly", "m1", "wrong")
    for _ in range(2):
        bench.run("sudo", "-S", "true", stdin="wrong\n")

    assert bench.run("dscl", ".", "-authonly", "m1", PASSWORD).code == 14167 % 256


def test_a_record_that_is_not_there_is_eDSRecordNotFound(bench: Bench) -> None:  # noqa: N802 - the same
    said = bench.run("dscl", ".", "-read", "/Users/nobody-here")

    assert (said.code, said.err) == (56, "<dscl_cmd> DS Error: -14136 (eDSRecordNotFound)\n")


def test_records_are_read_by_key(bench: Bench) -> None:
    said = bench.run("dscl", ".", "-read", "/Users/m1", "UniqueID", "NFSHomeDirectory")

    assert said.out == "UniqueID: 501\nNFSHomeDirectory: /Users/m1\n"
    assert bench.run("dscl", ".", "-list", "/Users").out == "m1\nroot\n"
