from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import prepare, tiers


class Machine:
    """Records commands; installing fails until the package lists are fetched, as in a fresh container."""

    def __init__(self, policy: Path) -> None:
        self.policy = policy
        self.commands: list[str] = []
        self.denied: list[bool] = []
        self.has_lists = False

    def run(self, command: Sequence[str]) -> int:
        self.commands.append(" ".join(command[:2]))
        self.denied.append(self.policy.read_text().endswith("exit 101\n"))
        self.has_lists |= command[1] == "update"
        return 0 if self.has_lists else 100


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "apt-get").touch(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr("sys.platform", "linux")
    return Machine(tmp_path / "policy-rc.d")


def test_a_fresh_container_gets_the_lists_and_then_the_package_with_services_denied(
    machine: Machine,
) -> None:
    prepare.install_programs(["process"], run=machine.run, may_install=True, policy=machine.policy)

    assert machine.commands == ["apt-get install", "apt-get update", "apt-get install"]
    assert machine.denied == [True, True, True]
    assert not machine.policy.exists()


def test_user_without_root_installs_nothing(machine: Machine) -> None:
    prepare.install_programs(["process"], run=machine.run, may_install=False, policy=machine.policy)

    assert machine.commands == []


def test_tiers_that_need_nothing_install_nothing(machine: Machine) -> None:
    selected = ["unit", "meta", "scenarios"]

    prepare.install_programs(selected, run=machine.run, may_install=True, policy=machine.policy)

    assert machine.commands == []


def test_original_policy_is_restored_after_a_failure(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")
    policy.chmod(0o700)

    with pytest.raises(KeyboardInterrupt), prepare.services_denied(policy):
        raise KeyboardInterrupt

    assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert policy.stat().st_mode & 0o777 == 0o700


def test_missing_program_is_reported_with_the_install_command(machine: Machine) -> None:
    tiers.missing_for.cache_clear()

    missing = tiers.missing_for("process")

    tiers.missing_for.cache_clear()
    assert missing == (
        "openssl, curl, strace, bwrap, sshd, shellcheck missing; "
        "run: sudo apt-get install openssl curl strace bubblewrap openssh-server shellcheck"
    )


def test_tiers_are_chosen_by_name_and_an_unknown_one_is_refused() -> None:
    assert tiers.selected("") == tiers.NAMES
    assert tiers.selected("unit, process") == ("unit", "process")
    with pytest.raises(ValueError, match="TIERS names moon"):
        tiers.selected("unit,moon")
