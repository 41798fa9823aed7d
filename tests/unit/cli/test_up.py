"""The screen of `bramley up`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bramley.app.apiserver import Settings
from bramley.app.listen_address import Address
from bramley.app.up import MacFailed, MacReady, StepDone, Waiting
from bramley.cli import up
from bramley.cli.up import Screen

ADDRESS = Address("127.0.0.1", 6443)
SETTINGS = Settings(Path("/data"), ADDRESS, Path("/data/kubeconfig"))
COMMANDS = ["kubectl get nodes"]
Captured = pytest.CaptureFixture[str]


def new_screen(*, macs: int) -> Screen:
    return Screen(SETTINGS, macs=macs, commands=COMMANDS)


def test_without_macs_the_commands_are_printed_at_once(capsys: Captured) -> None:
    new_screen(macs=0).on_serving(ADDRESS)

    printed = capsys.readouterr().out
    assert printed.startswith("API server  https://127.0.0.1:6443\n")
    assert "/data/kubeconfig" in printed
    assert "\n  kubectl get nodes\n" in printed
    assert "simulated" not in printed


def test_long_operation_is_printed_and_is_not_counted_as_a_mac(capsys: Captured) -> None:
    new_screen(macs=1).on_progress(Waiting("building archives"))

    assert capsys.readouterr().out == "Macs        building archives\n"


def test_only_steps_with_changes_are_printed(capsys: Captured) -> None:
    screen = new_screen(macs=1)
    screen.on_progress(StepDone("mac-1", "sudo", 0))
    screen.on_progress(StepDone("mac-1", "sleep", 4))

    assert capsys.readouterr().out == "mac-1       sleep: 4 done\n"


def test_commands_are_printed_after_every_mac_is_ready_or_has_failed(capsys: Captured) -> None:
    screen = new_screen(macs=2)
    screen.on_serving(ADDRESS)
    assert "2 simulated" in capsys.readouterr().out

    screen.on_progress(MacFailed("mac-2", "its agent exited with code 1"))
    failed = capsys.readouterr().out
    assert failed.startswith("mac-2 ")
    assert "its agent exited with code 1" in failed

    screen.on_progress(MacReady("mac-1", timedelta(seconds=1.25)))
    ready, *rest = capsys.readouterr().out.splitlines()
    assert ready == "mac-1       Ready after 1.2 s (1 of 2)"
    assert "  kubectl get nodes" in rest


@pytest.mark.parametrize("macs", [0, 3])
def test_at_most_six_commands_are_suggested_with_a_quoted_path(macs: int) -> None:
    commands = list(up.commands_to_try(Path("/a b/kubeconfig"), "bramley", macs=macs))

    assert commands[0] == "export KUBECONFIG='/a b/kubeconfig'"
    assert len(commands) <= 6
