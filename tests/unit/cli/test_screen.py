from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bramley.app.apiserver import Settings
from bramley.app.listening import Address
from bramley.app.up import CameUp, Failed, Stepped, Waiting
from bramley.cli.screen import Screen

ADDRESS = Address("127.0.0.1", 6443)
SETTINGS = Settings(Path("/data"), ADDRESS, Path("/data/kubeconfig"))
STEPS = [("See the Macs", "kubectl get nodes")]
Captured = pytest.CaptureFixture[str]


def test_steps_come_at_once_where_there_are_no_macs(capsys: Captured) -> None:
    Screen(SETTINGS, macs=0, steps=STEPS).started(ADDRESS)

    printed = capsys.readouterr().out
    assert printed.startswith("Serving     the Kubernetes API at https://127.0.0.1:6443\n")
    assert "\n# See the Macs\nkubectl get nodes\n" in printed
    assert "simulated" not in printed


def test_one_mac_is_told_as_one(capsys: Captured) -> None:
    Screen(SETTINGS, macs=1, steps=STEPS).started(ADDRESS)

    assert "1 simulated one is starting, with a real agent\n" in capsys.readouterr().out


def test_what_takes_long_is_told_and_counts_as_no_mac(capsys: Captured) -> None:
    screen = Screen(SETTINGS, macs=1, steps=STEPS)
    screen.hear(Waiting("archives are made first"))

    assert capsys.readouterr().out == "Macs        archives are made first\n"


def test_only_steps_that_had_something_to_do_are_told(capsys: Captured) -> None:
    screen = Screen(SETTINGS, macs=1, steps=STEPS)
    screen.hear(Stepped("mac-1", "sudo", 0))
    screen.hear(Stepped("mac-1", "sleep", 4))

    assert capsys.readouterr().out == "mac-1       sleep: 4 done\n"


def test_steps_come_after_the_last_mac_came_up_or_failed(capsys: Captured) -> None:
    screen = Screen(SETTINGS, macs=2, steps=STEPS)
    screen.started(ADDRESS)
    assert "2 simulated ones are starting" in capsys.readouterr().out

    screen.hear(Failed("mac-2", "its agent ended with code 1; see agent.log: no tart"))
    assert capsys.readouterr().out == (
        "mac-2       did not come up: its agent ended with code 1; see agent.log: no tart\n"
    )

    screen.hear(CameUp("mac-1", timedelta(seconds=1.25)))
    told, *rest = capsys.readouterr().out.splitlines()
    assert told == "mac-1       Ready after 1.2 s (1 of 2)"
    assert "kubectl get nodes" in rest
