"""tools/venv.sh on machines that this one is not: no Python, an old one, one without ensurepip."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.programs import run_program

SCRIPT = Path(__file__).parents[3] / "tools/venv.sh"

# A Python that knows its version and whether it has ensurepip, and that makes empty environments.
PYTHON = """#!/bin/sh
case "$*" in
    *"sys.version_info < (3, 11)"*) exit {too_old} ;;
    *"import ensurepip"*) [ -e "$(dirname "$0")/ensurepip" ] ;;
    *"print("*) echo 3.11 ;;
    --version) echo Python 3.11.2 ;;
    *"-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *) echo "called: $*" ;;
esac
"""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.folder = folder
        for name in ("dirname", "mkdir", "cp", "sh"):
            found = next(p for p in ("/bin", "/usr/bin") if (Path(p) / name).exists())
            (self.programs / name).symlink_to(Path(found) / name)

    def has(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def user_is(self, number: int) -> None:
        self.has("id", f"#!/bin/sh\necho {number}\n")

    def make(self) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": str(self.programs), "PYTHON": ""}
        return run_program(["/bin/sh", str(SCRIPT), "new"], cwd=self.folder, env=environment)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_error_without_python_has_the_install_command(machine: Machine) -> None:
    made = machine.make()

    assert made.returncode == 1
    assert "apt-get install python3 python3-venv" in made.stderr


def test_old_python3_is_skipped_for_a_newer_one(machine: Machine) -> None:
    machine.has("python3", PYTHON.format(too_old=1))
    machine.has("python3.12", PYTHON.format(too_old=0))
    (machine.programs / "ensurepip").touch()

    made = machine.make()

    assert made.returncode == 0
    assert "--require-hashes -r requirements/dev.txt" in made.stdout
    assert "--no-deps --no-build-isolation -e ." in made.stdout


def test_user_without_root_and_ensurepip_gets_the_command(machine: Machine) -> None:
    machine.has("python3", PYTHON.format(too_old=0))
    machine.user_is(1000)

    made = machine.make()

    assert made.returncode == 1
    assert "Run: sudo apt-get install python3.11-venv" in made.stderr


def test_root_without_ensurepip_gets_the_package(machine: Machine) -> None:
    machine.has("python3", PYTHON.format(too_old=0))
    machine.has("apt-get", '#!/bin/sh\n: > "$(dirname "$0")/ensurepip"; echo "apt-get $*"\n')
    machine.user_is(0)

    made = machine.make()

    assert made.returncode == 0
    assert "apt-get install -y -q python3.11-venv" in made.stdout
