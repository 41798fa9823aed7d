"""sudo of a simulated Mac: its rules, its messages, and the account lock after wrong passwords."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.sim.macos import faults
from tests.unit.sim.macos.harness import PASSWORD, MacHarness

RULE = b"m1 ALL=(ALL) NOPASSWD: ALL\n"


def test_bare_mac_requires_a_password(harness: MacHarness) -> None:
    result = harness.run("sudo", "-n", "true")

    assert (result.code, result.err) == (1, "sudo: a password is required\n")


def test_without_a_terminal_the_error_names_the_stdin_option(harness: MacHarness) -> None:
    result = harness.run("sudo", "true", stdin=f"{PASSWORD}\n")

    assert result.code == 1
    assert result.err.startswith(
        "sudo: a terminal is required to read the password; either use the -S"
    )
    assert result.err.endswith("sudo: a password is required\n")


def test_password_is_the_first_line_and_the_program_gets_the_rest(harness: MacHarness) -> None:
    result = harness.run("sudo", "-S", "-p", "", "cat", stdin=f"{PASSWORD}\nfor cat\n")

    assert (result.code, result.out, result.err) == (0, "for cat\n", "")


def test_without_a_required_password_the_program_gets_all_of_stdin(harness: MacHarness) -> None:
    harness.allow_sudo()

    result = harness.run("sudo", "-S", "-p", "", "cat", stdin=f"{PASSWORD}\nfor cat\n")

    assert result.out == f"{PASSWORD}\nfor cat\n"


def test_wrong_password_has_the_message_of_sudo(harness: MacHarness) -> None:
    result = harness.run("sudo", "-S", "true", stdin="wrong\n")

    assert result.code == 1
    assert result.err == (
        "Password:Sorry, try again.\nPassword:\nsudo: no password was provided\nsudo: 1 incorrect password attempt\n"
    )


def test_sudo_fails_after_three_wrong_passwords(harness: MacHarness) -> None:
    result = harness.run("sudo", "-S", "-p", "", "true", stdin=f"a\nb\nc\n{PASSWORD}\n")

    assert result.code == 1
    assert result.err.endswith("sudo: 3 incorrect password attempts\n")


def test_missing_password_is_reported(harness: MacHarness) -> None:
    result = harness.run("sudo", "-S", "-p", "", "true")

    assert result.err == "\nsudo: no password was provided\nsudo: a password is required\n"


def test_locked_account_refuses_the_right_password(harness: MacHarness) -> None:
    for _ in range(5):
        harness.run("sudo", "-S", "true", stdin="wrong\n")

    assert harness.run("sudo", "-S", "true", stdin=f"{PASSWORD}\n").code == 1
    harness.clock.advance(301)
    assert harness.run("sudo", "-S", "true", stdin=f"{PASSWORD}\n").code == 0


def test_right_password_resets_the_count_of_wrong_ones(harness: MacHarness) -> None:
    for _ in range(3):
        for _ in range(4):
            harness.run("sudo", "-S", "true", stdin="wrong\n")
        assert harness.run("sudo", "-S", "true", stdin=f"{PASSWORD}\n").code == 0


def test_rule_in_the_folder_allows_sudo_without_a_password(harness: MacHarness) -> None:
    harness.mac.files.write("/etc/sudoers.d/m1-nopasswd", RULE, mode=0o440)

    result = harness.run("sudo", "-n", "whoami")

    assert (result.code, result.out, result.err) == (0, "root\n", "")


@pytest.mark.parametrize("name", ["m1.nopasswd", "m1-nopasswd~"])
def test_files_with_a_dot_or_a_tilde_are_ignored(harness: MacHarness, name: str) -> None:
    harness.mac.files.write(f"/etc/sudoers.d/{name}", RULE, mode=0o440)

    assert harness.run("sudo", "-n", "true").code == 1


def test_world_writable_rule_is_ignored(harness: MacHarness) -> None:
    harness.mac.files.write("/etc/sudoers.d/m1-nopasswd", RULE, mode=0o666)

    result = harness.run("sudo", "-n", "true")

    assert (
        result.err
        == "sudo: /private/etc/sudoers.d/m1-nopasswd is world writable\nsudo: a password is required\n"
    )


def test_rule_of_another_owner_is_ignored(harness: MacHarness) -> None:
    harness.mac.files.write("/etc/sudoers.d/m1-nopasswd", RULE, mode=0o440, owner="m1:staff")

    result = harness.run("sudo", "-n", "true")

    assert "is owned by uid 501, should be 0\n" in result.err
    assert result.code == 1


def test_invalid_line_is_reported_and_ignored(harness: MacHarness) -> None:
    harness.mac.files.write("/etc/sudoers.d/m1-nopasswd", b"m1 ALL=(ALL NOPASSWD ALL\n", mode=0o440)

    result = harness.run("sudo", "-n", "true")

    assert "/private/etc/sudoers.d/m1-nopasswd:1: syntax error\n" in result.err
    assert result.code == 1


def test_later_rule_overrides_an_earlier_one(harness: MacHarness) -> None:
    harness.mac.files.write("/etc/sudoers.d/a", RULE, mode=0o440)
    harness.mac.files.write("/etc/sudoers.d/b", b"m1 ALL=(ALL) ALL\n", mode=0o440)

    assert harness.run("sudo", "-n", "true").code == 1


def test_user_who_is_not_an_administrator_is_refused(tmp_path: Path) -> None:
    result = MacHarness(tmp_path, is_admin=False).run("sudo", "-S", "true", stdin=f"{PASSWORD}\n")

    assert (result.code, result.err) == (1, "m1 is not in the sudoers file.\n")


def test_sudo_fault_refuses_every_user_until_it_is_removed(harness: MacHarness) -> None:
    harness.allow_sudo()
    faults.refuse_sudo(harness.mac)

    assert harness.run("sudo", "-n", "true").code == 1
    faults.refuse_sudo(harness.mac, refused=False)
    assert harness.run("sudo", "-n", "true").code == 0


def test_missing_program_has_the_error_of_sudo(harness: MacHarness) -> None:
    harness.allow_sudo()

    result = harness.run("sudo", "-n", "nothing-like-it")

    assert (result.code, result.err) == (1, "sudo: nothing-like-it: command not found\n")


def test_options_variables_and_other_users_are_supported(harness: MacHarness) -> None:
    harness.allow_sudo()

    assert harness.run("sudo", "-n", "-H", "-u", "m1", "A=b", "whoami").out == "m1\n"
    assert harness.run("sudo", "-nE", "--", "whoami").out == "root\n"
    assert harness.run("sudo", "-n", "-v").code == 0
    assert harness.run("sudo", "-k").code == 0
    assert harness.run("sudo", "-n", "-u", "m9", "true").err == "sudo: unknown user m9\n"
    assert harness.run("sudo", "--no-such-option", "true").err.startswith("usage: sudo")
