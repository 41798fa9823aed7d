"""The programs of a simulated Mac, tested by data: files on the Mac, calls, and their results."""

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
from tests.unit.sim.macos.programs.fixed_clock import FixedClock

CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml"))
    for case in msgspec.yaml.decode(path.read_bytes())
]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Settings], Mac]:
    clock: Clock = FixedClock()

    def made(settings: Settings) -> Mac:
        return Mac.create(tmp_path_factory.mktemp("mac"), settings=settings, clock=clock)

    return made


@pytest.mark.parametrize("case", CASES)
def test_program_has_the_result_of_a_mac(
    case: dict[str, Any], make: Callable[[Settings], Mac]
) -> None:
    mac = make(replace(Settings(), **case.get("settings", {})))
    for path, content in case.get("files", {}).items():
        put(mac, path, content)
    with mac.change() as state:
        state.update(case.get("state", {}))

    for expected in case["calls"]:
        if expected.get("reboot"):
            reboot(mac)
            continue
        result = mac.run(call_of(expected))
        assert difference(expected, result) == ""


def reboot(mac: Mac) -> None:
    """Restart the Mac; it is up at once."""
    with mac.change() as state:
        state["settings"]["boot_seconds"] = 0.0
    mac.reboot()
    assert mac.is_up


def put(mac: Mac, path: str, content: str) -> None:
    """Write a file; a script is executable."""
    folder = path.rpartition("/")[0]
    if not mac.files.is_folder(folder):
        mac.files.make_folder(folder)
    mac.files.write(path, content.encode(), mode=0o755 if content.startswith("#!") else 0o644)


def call_of(expected: dict[str, Any]) -> Call:
    words = expected["run"].split() if isinstance(expected["run"], str) else expected["run"]
    stdin, environment = expected.get("stdin", "").encode(), expected.get("environment", {})
    return Call(tuple(words), expected.get("as", "root"), stdin, environment=environment)


def difference(expected: dict[str, Any], result: Result) -> str:
    """Return how the result differs from the expected one; empty if it does not."""
    wrong = []
    if result.code != expected.get("code", 0):
        wrong.append(f"code {result.code}")
    if "out" in expected and result.out != expected["out"]:
        wrong.append("out")
    for key, where in (("has", result.out), ("err", result.err)):
        parts = expected.get(key, [])
        missing = [
            one for one in ([parts] if isinstance(parts, str) else parts) if one not in where
        ]
        wrong += [f"{key} without {one!r}" for one in missing]
    everything = result.out + result.err
    wrong += [f"unexpected {one!r}" for one in expected.get("lacks", []) if one in everything]
    return f"{expected['run']}: {'; '.join(wrong)}\n{result}" if wrong else ""


@pytest.mark.parametrize("name", sorted({*PROGRAMS, *ORDINARY}))
def test_every_registered_program_exists(name: str) -> None:
    assert callable(find(name))


# Programs that accept any arguments, or none.
ACCEPT_ANYTHING = {
    "sudo", "dscl", "launchctl", "killall", "shutdown", "reboot", "true", "false", "whoami", "id", "cat", "ls", "chmod", "chown",
    "tar", "pgrep", "cmp", "printenv",
}  # fmt: skip
THIRD_PARTY = {"tailscale", "tailscaled", "node_exporter", "tart"}


@pytest.fixture(scope="module")
def full(make: Callable[[Settings], Mac]) -> Mac:
    mac = make(Settings())
    for name in THIRD_PARTY:
        put(mac, f"/usr/local/bin/{name}", f"#!/bin/sh\n# simulated {name} 1.0\n")
    return mac


@pytest.mark.parametrize("name", sorted({*PROGRAMS, *ORDINARY} - ACCEPT_ANYTHING))
def test_unknown_option_is_refused(name: str, full: Mac) -> None:
    result = full.run(Call((name, "--no-such-option"), "root"))

    assert result.code != 0
    assert result.err
