"""The installed program: it starts quickly and imports only the standard library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bramley.sim.tart import process
from tests.programs import run_program

# Each of these would cost a call a tenth of its time or more.
HEAVY = {"pathlib", "dataclasses", "argparse", "asyncio", "subprocess", "inspect", "datetime"}


def call(path: Path, *words: str, env: dict[str, str] | None = None) -> str:
    done = run_program([path, *words], env=env or {}, check=True)
    return done.stdout


@pytest.mark.parametrize("folder", ["bin", "a folder with blanks", "long" * 30])
def test_program_starts_from_any_path_with_any_interpreter(folder: str, tmp_path: Path) -> None:
    python = tmp_path / folder / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    path = tmp_path / folder / "tart"

    process.install_program(str(path), str(tmp_path / "home"), str(python))

    assert call(path, "--version") == "2.32.1\n"


def test_home_is_that_of_the_environment_or_the_default(tmp_path: Path) -> None:
    path = tmp_path / "tart"
    process.install_program(str(path), str(tmp_path / "own"), sys.executable)

    call(path, "list")
    call(path, "list", env={"TART_HOME": str(tmp_path / "given")})

    assert (tmp_path / "own/vms").is_dir()
    assert (tmp_path / "given/vms").is_dir()


def test_call_imports_little_and_no_site_packages(tmp_path: Path) -> None:
    path = tmp_path / "tart"
    process.install_program(str(path), str(tmp_path / "home"), sys.executable)
    text = path.read_text().replace("process.main(", "process.run(['list'], ")
    program = (
        text + '\nprint(*(f\'{n}={getattr(m, "__file__", "")}\' for n, m in sys.modules.items()))'
    )

    modules = run_program([sys.executable, "-ISE", "-c", program], check=True).stdout.split()

    loaded = {name for name, _, _ in (word.partition("=") for word in modules)}
    assert "bramley.sim.tart.queries" in loaded
    assert loaded & HEAVY == set()
    assert not any("site-packages" in word for word in modules)
