"""The programs of a simulated Mac, told as data: what lies on the Mac, what is called, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bramley.base.clock import Clock
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import ORDINARY, PROGRAMS, find
from tests.unit.sim.macos.programs.clocks import Stopped

CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml"))
    for case in msgspec.yaml.decode(path.read_bytes())
]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Settings], Mac]:
    clock: Clock = Stopped()

    def made(settings: Settings) -> Mac:
        return Mac.make(tmp_path_factory.mktemp("mac"), settings=settings, clock=clock)

    return made


@pytest.mark.parametrize("case", CASES)
def test_program_answers_as_on_a_mac(case: dict[str, Any], make: Callable[[Settings], Mac]) -> None:
    mac = make(replace(Settings(), **case.get("settings", {})))
    for path, content in case.get("files", {}).items():
        put(mac, path, content)
    with mac.change() as state:
        state.update(case.get("state", {}))

    for told in case["calls"]:
        if told.get("reboot"):
            reboot(mac)
            continue
        said = mac.run(call_of(told))
        assert disagreement(told, said) == ""


def reboot(mac: Mac) -> None:
    """Let the Mac come back at once."""
    with mac.change() as state:
        state["settings"]["boot_seconds"] = 0.0
    mac.reboot()
    assert mac.is_up


def put(mac: Mac, path: str, content: str) -> None:
    """Lay a file out; one that begins as a script may be executed."""
    folder = path.rpartition("/")[0]
    if not mac.files.is_folder(folder):
        mac.files.make_folder(folder)
    mac.files.write(path, content.encode(), mode=0o755 if content.startswith("#!") else 0o644)


def call_of(told: dict[str, Any]) -> Call:
    words = told["run"].split() if isinstance(told["run"], str) else told["run"]
    return Call(tuple(words), told.get("as", "root"), told.get("stdin", "").encode())


def disagreement(told: dict[str, Any], said: Result) -> str:
    """Return how the answer differs from what the case has; empty if it does not."""
    wrong = []
    if said.code != told.get("code", 0):
        wrong.append(f"code {said.code}")
    if "out" in told and said.out != told["out"]:
        wrong.append("out")
    for key, where in (("has", said.out), ("err", said.err)):
        wanted = told.get(key, [])
        missing = [
            one for one in ([wanted] if isinstance(wanted, str) else wanted) if one not in where
        ]
        wrong += [f"{key} without {one!r}" for one in missing]
    everything = said.out + said.err
    wrong += [f"said {one!r}" for one in told.get("lacks", []) if one in everything]
    return f"{told['run']}: {'; '.join(wrong)}\n{said}" if wrong else ""


@pytest.mark.parametrize("name", sorted({*PROGRAMS, *ORDINARY}))
def test_every_program_of_the_registry_is_there(name: str) -> None:
    assert callable(find(name))


# Those that take any words, or none at all.
ANYTHING_GOES = {
    "sudo", "dscl", "launchctl", "killall", "shutdown", "reboot", "true", "false", "whoami", "id", "cat", "ls", "chmod", "chown",
    "tar", "pgrep", "cmp", "printenv",
}  # fmt: skip
BROUGHT = {"tailscale", "tailscaled", "node_exporter", "tart"}


@pytest.fixture(scope="module")
def full(make: Callable[[Settings], Mac]) -> Mac:
    mac = make(Settings())
    for name in BROUGHT:
        put(mac, f"/usr/local/bin/{name}", f"#!/bin/sh\n# simulated {name} 1.0\n")
    return mac


@pytest.mark.parametrize("name", sorted({*PROGRAMS, *ORDINARY} - ANYTHING_GOES))
def test_an_option_that_nobody_knows_is_refused_and_not_passed_over(name: str, full: Mac) -> None:
    said = full.run(Call((name, "--no-such-option"), "root"))

    assert said.code != 0
    assert said.err
