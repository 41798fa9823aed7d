"""dscl of a simulated Mac: passwords at its prompt, and the errors of the directory."""

from __future__ import annotations

from tests.unit.sim.macos.harness import PASSWORD, MacHarness


def test_right_password_at_the_prompt_prints_nothing(harness: MacHarness) -> None:
    result = harness.run("dscl", ".", "-authonly", "m1", stdin=f"{PASSWORD}\n", on_terminal=True)

    assert (result.code, result.out, result.err) == (0, "Password: \n", "")


def test_wrong_password_is_eDSAuthFailed(harness: MacHarness) -> None:  # noqa: N802 - the directory's own word
    result = harness.run("dscl", ".", "-authonly", "m1", stdin="wrong\n", on_terminal=True)

    # A shell sees the last eight bits of 14090.
    assert result.code == 10
    assert "Authentication for node /Local/Default failed. (-14090, eDSAuthFailed)\n" in result.out
    assert result.err == "<dscl_cmd> DS Error: -14090 (eDSAuthFailed)\n"


def test_passwordless_sudo_does_not_make_a_wrong_password_right(harness: MacHarness) -> None:
    harness.allow_sudo()

    assert harness.run("dscl", ".", "-authonly", "m1", "wrong").code == 10


def test_wrong_passwords_lock_the_account(harness: MacHarness) -> None:
    for _ in range(5):
        harness.run("dscl", ".", "-authonly", "m1", "wrong")

    result = harness.run("dscl", ".", "-authonly", "m1", PASSWORD)

    assert result.code == 14167 % 256
    assert "eDSAuthAccountDisabled" in result.err


def test_wrong_passwords_of_sudo_and_the_directory_are_counted_together(
    harness: MacHarness,
) -> None:
    for _ in range(3):
        harness.run("dscl", ".", "-authonly", "m1", "wrong")
    for _ in range(2):
        harness.run("sudo", "-S", "true", stdin="wrong\n")

    assert harness.run("dscl", ".", "-authonly", "m1", PASSWORD).code == 14167 % 256


def test_missing_record_is_eDSRecordNotFound(harness: MacHarness) -> None:  # noqa: N802 - the same
    result = harness.run("dscl", ".", "-read", "/Users/no-such-user")

    assert (result.code, result.err) == (56, "<dscl_cmd> DS Error: -14136 (eDSRecordNotFound)\n")


def test_records_are_read_by_key(harness: MacHarness) -> None:
    result = harness.run("dscl", ".", "-read", "/Users/m1", "UniqueID", "NFSHomeDirectory")

    assert result.out == "UniqueID: 501\nNFSHomeDirectory: /Users/m1\n"
    assert harness.run("dscl", ".", "-list", "/Users").out == "m1\nroot\n"
