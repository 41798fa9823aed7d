"""The screen of `bramley up`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.app import apiserver
from bramley.app.listen_address import Address
from bramley.app.own_macs import OwnMac
from bramley.app.up import (
    ExpectedMacs,
    MacFailed,
    MacReady,
    MacSettings,
    MacStep,
    Settings,
    Waiting,
)
from bramley.cli import up
from bramley.cli.up import Screen

ADDRESS = Address("127.0.0.1", 6443)
SERVER = apiserver.Settings(Path("/data"), ADDRESS, Path("/data/kubeconfig"))
COMMANDS = ["kubectl get nodes"]
Captured = pytest.CaptureFixture[str]


def settings(*, macs: int = 0, rented: int | None = None, own: int = 0) -> Settings:
    owned = tuple(OwnMac(user="m1", host=f"10.0.0.{each}", port=22) for each in range(own))
    return Settings(SERVER, MacSettings(Path("/data/macs"), macs), rented=rented, own=owned)


def new_screen(*, macs: int) -> Screen:
    return Screen(settings(macs=macs), commands=COMMANDS)


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


def test_steps_of_a_mac_are_printed(capsys: Captured) -> None:
    new_screen(macs=1).on_progress(MacStep("macs-x", "tart (10/26)"))

    assert capsys.readouterr().out == "macs-x      tart (10/26)\n"


def test_managed_macs_are_counted_once_it_is_known_how_many_there_are(capsys: Captured) -> None:
    screen = Screen(settings(rented=1), commands=COMMANDS)
    screen.on_serving(ADDRESS)
    assert "renting 1 simulated, and a builder" in capsys.readouterr().out

    screen.on_progress(ExpectedMacs(2))
    screen.on_progress(MacReady("macs-x", timedelta(seconds=30)))
    screen.on_progress(MacFailed("builders-x", "attempt 1 failed"))
    first = capsys.readouterr().out
    screen.on_progress(MacReady("builders-x", timedelta(seconds=60)))

    assert "Ready after 30.0 s (1 of 2)" in first
    assert "kubectl get nodes" in first
    assert capsys.readouterr().out == "builders-x  Ready after 60.0 s (2 of 2)\n"


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


@pytest.mark.parametrize("macs", [{}, {"macs": 3}, {"rented": 2}, {"own": 1}])
def test_at_most_six_commands_are_suggested_with_a_quoted_path(macs: dict[str, int]) -> None:
    server = apiserver.Settings(Path("/a b"), ADDRESS, Path("/a b/kubeconfig"))
    commands = list(up.commands_to_try(replace(settings(**macs), server=server), "bramley"))

    assert commands[0] == "export KUBECONFIG='/a b/kubeconfig'"
    assert 3 < len(commands) <= 6
