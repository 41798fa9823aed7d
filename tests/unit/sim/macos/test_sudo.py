"""sudo of a simulated Mac: its rules, its words, and the lock that too many wrong passwords set."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.sim.macos import faults
from tests.unit.sim.macos.macs import PASSWORD, Bench

RULE = b"m1 ALL=(ALL) NOPASSWD: ALL\n"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_bare_mac_wants_a_password(bench: Bench) -> None:
    said = bench.run("sudo", "-n", "true")

    assert (said.code, said.err) == (1, "sudo: a password is required\n")


def test_without_a_terminal_sudo_says_which_option_reads_stdin(bench: Bench) -> None:
    said = bench.run("sudo", "true", stdin=f"{PASSWORD}\n")

    assert said.code == 1
    assert said.err.startswith(
        "sudo: a terminal is required to read the password; either use the -S"
    )
    assert said.err.endswith("sudo: a password is required\n")


def test_the_password_is_the_first_line_and_the_rest_is_the_programs(bench: Bench) -> None:
    said = bench.run("sudo", "-S", "-p", "", "cat", stdin=f"{PASSWORD}\nfor cat\n")

    assert (said.code, said.out, said.err) == (0, "for cat\n", "")


def test_where_no_password_is_wanted_the_program_gets_the_line_that_was_meant_for_sudo(
    bench: Bench,
) -> None:
    bench.let_sudo()

    said = bench.run("sudo", "-S", "-p", "", "cat", stdin=f"{PASSWORD}\nfor cat\n")

    assert said.out == f"{PASSWORD}\nfor cat\n"


def test_a_wrong_password_is_told_in_sudos_words(bench: Bench) -> None:
    said = bench.run("sudo", "-S", "true", stdin="wrong\n")

    assert said.code == 1
    assert said.err == (
        "Password:Sorry, try again.\nPassword:\nsudo: no password was provided\nsudo: 1 incorrect password attempt\n"
    )


def test_three_wrong_passwords_are_enough(bench: Bench) -> None:
    said = bench.run("sudo", "-S", "-p", "", "true", stdin=f"a\nb\nc\n{PASSWORD}\n")

    assert said.code == 1
    assert said.err.endswith("sudo: 3 incorrect password attempts\n")


def test_no_password_at_all_is_required(bench: Bench) -> None:
    said = bench.run("sudo", "-S", "-p", "", "true")

    assert said.err == "\nsudo: no password was provided\nsudo: a password is required\n"


def test_too_many_wrong_passwords_lock_the_account_for_the_right_one_too(bench: Bench) -> None:
    for _ in range(5):
        bench.run("sudo", "-S", "true", stdin="wrong\n")

    assert bench.run("sudo", "-S", "true", stdin=f"{PASSWORD}\n").code == 1
    bench.clock.turn(301)
    assert bench.run("sudo", "-S", "true", stdin=f"{PASSWORD}\n").code == 0


def test_the_right_password_forgives_the_wrong_ones_before(bench: Bench) -> None:
    for _ in range(3):
        for _ in range(4):
            bench.run("sudo", "-S", "true", stdin="wrong\n")
        assert bench.run("sudo", "-S", "true", stdin=f"{PASSWORD}\n").code == 0


def test_a_rule_in_the_folder_lets_the_user_in_without_a_password(bench: Bench) -> None:
    bench.mac.files.write("/etc/sudoers.d/m1-nopasswd", RULE, mode=0o440)

    said = bench.run("sudo", "-n", "whoami")

    assert (said.code, said.out, said.err) == (0, "root\n", "")


@pytest.mark.parametrize("name", ["m1.nopasswd", "m1-nopasswd~"])
def test_names_with_a_dot_or_a_tilde_are_passed_over(bench: Bench, name: str) -> None:
    bench.mac.files.write(f"/etc/sudoers.d/{name}", RULE, mode=0o440)

    assert bench.run("sudo", "-n", "true").code == 1


def test_a_rule_that_everybody_could_have_written_does_not_count(bench: Bench) -> None:
    bench.mac.files.write("/etc/sudoers.d/m1-nopasswd", RULE, mode=0o666)

    said = bench.run("sudo", "-n", "true")

    assert (
        said.err
        == "sudo: /private/etc/sudoers.d/m1-nopasswd is world writable\nsudo: a password is required\n"
    )


def test_a_rule_of_another_owner_does_not_count(bench: Bench) -> None:
    bench.mac.files.write("/etc/sudoers.d/m1-nopasswd", RULE, mode=0o440, owner="m1:staff")

    said = bench.run("sudo", "-n", "true")

    assert "is owned by uid 501, should be 0\n" in said.err
    assert said.code == 1


def test_a_line_with_a_mistake_is_told_and_left_out(bench: Bench) -> None:
    bench.mac.files.write("/etc/sudoers.d/m1-nopasswd", b"m1 ALL=(ALL NOPASSWD ALL\n", mode=0o440)

    said = bench.run("sudo", "-n", "true")

    assert "/private/etc/sudoers.d/m1-nopasswd:1: syntax error\n" in said.err
    assert said.code == 1


def test_a_later_rule_takes_an_earlier_one_back(bench: Bench) -> None:
    bench.mac.files.write("/etc/sudoers.d/a", RULE, mode=0o440)
    bench.mac.files.write("/etc/sudoers.d/b", b"m1 ALL=(ALL) ALL\n", mode=0o440)

    assert bench.run("sudo", "-n", "true").code == 1


def test_who_is_no_administrator_is_not_in_the_file(tmp_path: Path) -> None:
    said = Bench(tmp_path, is_admin=False).run("sudo", "-S", "true", stdin=f"{PASSWORD}\n")

    assert (said.code, said.err) == (1, "m1 is not in the sudoers file.\n")


def test_sudo_may_refuse_everybody_until_it_is_mended(bench: Bench) -> None:
    bench.let_sudo()
    faults.refuse_sudo(bench.mac)

    assert bench.run("sudo", "-n", "true").code == 1
    faults.refuse_sudo(bench.mac, refused=False)
    assert bench.run("sudo", "-n", "true").code == 0


def test_a_program_that_is_not_there_is_sudos_error(bench: Bench) -> None:
    bench.let_sudo()

    said = bench.run("sudo", "-n", "nothing-like-it")

    assert (said.code, said.err) == (1, "sudo: nothing-like-it: command not found\n")


def test_options_settings_and_other_users_are_understood(bench: Bench) -> None:
    bench.let_sudo()

    assert bench.run("sudo", "-n", "-H", "-u", "m1", "A=b", "whoami").out == "m1\n"
    assert bench.run("sudo", "-nE", "--", "whoami").out == "root\n"
    assert bench.run("sudo", "-n", "-v").code == 0
    assert bench.run("sudo", "-k").code == 0
    assert bench.run("sudo", "-n", "-u", "somebody", "true").err == "sudo: unknown user somebody\n"
    assert bench.run("sudo", "--unheard-of", "true").err.startswith("usage: sudo")
