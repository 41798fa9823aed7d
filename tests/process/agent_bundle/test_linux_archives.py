"""The Linux pair: the same bytes from every folder, and an agent that starts anywhere, with no environment and no PATH."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bramley.api.names import agent, host
from bramley.app.agent_bundle import code, interpreter
from bramley.app.agent_bundle.agent_archives import AgentArchives
from bramley.app.agent_bundle.archive import file_names
from tests.meta.documents import ROOT
from tests.process.agent_bundle.installed import Installed, install, run
from tests.programs import run_program
from tools.agent_bundle import linux

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is made on Linux only")


@pytest.fixture(scope="module")
def archives() -> AgentArchives:
    return linux.cached()


@pytest.fixture(scope="module")
def installed(archives: AgentArchives, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(archives, tmp_path_factory.mktemp("some mac") / "its root")


@pytest.fixture
def in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Build in another folder, with another umask and another hash seed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "4711")
    before = os.umask(0o077)
    yield tmp_path / "quite" / "another folder"
    os.umask(before)


def test_two_builds_in_different_folders_are_the_same_bytes(
    archives: AgentArchives, in_another_folder: Path
) -> None:
    again = linux.build(in_another_folder)

    assert again.interpreter.path.read_bytes() == archives.interpreter.path.read_bytes()
    assert again.code.path.read_bytes() == archives.code.path.read_bytes()
    assert again.code.path.parent != archives.code.path.parent


def test_agent_starts_with_an_empty_environment_and_path(installed: Installed) -> None:
    version = run(installed.program, "--version", cwd=Path("/"))
    usage = run(installed.program, "--help", cwd=installed.root)

    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout == f"{agent.NAME} {code.release()}\n"
    assert (usage.returncode, usage.stderr) == (0, "")
    assert "--node-name" in usage.stdout


def test_environment_of_the_caller_has_no_effect(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "bramley.py").write_text("raise SystemExit('taken from the current folder')")
    trap = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"}
    words = [f"{name}={value}" for name, value in trap.items()]

    done = run("/usr/bin/env", *words, "bin/tart-kubelet", "--version", cwd=installed.release)

    assert (done.returncode, done.stderr) == (0, "")


def test_everything_the_agent_loads_lies_in_its_two_folders(installed: Installed) -> None:
    library, root = installed.release / "lib", installed.of(host.AGENT_ROOT)
    before = list(file_names(root))

    done = run(installed.python, "-I", "-S", "-B", HERE / "import_all.py", library, cwd=Path("/"))

    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert [each for each in report["sources"] if not Path(each).is_relative_to(root)] == []
    assert {f"{library}/bramley/{each}" for each in ("app/agent.py", "kube/http.py")} <= set(
        report["sources"]
    )
    elsewhere = [Path(sys.base_prefix, "lib"), Path(sys.prefix), ROOT]
    if sys.base_prefix != "/usr":
        mapped = [
            each for each in report["mapped"] if any(map(Path(each).is_relative_to, elsewhere))
        ]
        assert mapped == []
    # And it is unchanged since it was unpacked.
    assert list(file_names(root)) == before


def test_modules_are_loaded_from_their_shipped_bytecode(installed: Installed) -> None:
    library = installed.release / "lib"
    command = f"import sys; sys.path.append({str(library)!r}); import bramley.agent.host as found; print(found.__cached__)"

    done = run(installed.python, "-I", "-S", "-B", "-v", "-c", command, cwd=Path("/"))

    compiled = done.stdout.strip()
    assert Path(compiled).is_file()
    assert f"# code object from {compiled!r}" in done.stderr or f"matches {compiled}" in done.stderr


def test_no_file_names_the_folder_of_the_build(installed: Installed) -> None:
    names = [Path(name).name for name in file_names(installed.release)]

    assert {"RECORD", "INSTALLER", "direct_url.json"}.isdisjoint(names)
    for name in file_names(installed.release):
        assert str(ROOT).encode() not in (installed.release / name).read_bytes(), name


def test_binaries_load_libraries_from_their_own_folder(installed: Installed) -> None:
    folder = installed.python.parents[1]
    found = {
        name: interpreter.elf_search_path((folder / name).read_bytes())
        for name in file_names(folder)
        if name.startswith("bin/") or ".so" in name
    }

    assert [name for name, path in found.items() if str(sys.base_prefix) in path.split(":")] == []
    own = Path(
        sys.base_prefix, "lib", f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    )
    if own.exists() and sys.base_prefix != "/usr":
        assert found["bin/python3"] == "$ORIGIN/../lib"


def test_cached_archive_is_not_built_again(archives: AgentArchives) -> None:
    before = archives.code.path.stat()

    again = linux.cached()

    assert again == archives
    assert again.code.path.stat().st_mtime_ns == before.st_mtime_ns


def test_agent_starts_in_a_root_without_the_python_it_was_built_from(installed: Installed) -> None:
    shared = ("/usr", "/bin", "/lib", "/lib64")
    binds = [word for path in shared for word in ("--ro-bind-try", path, path)]
    own = ["--ro-bind", str(installed.of(host.AGENT_ROOT)), host.AGENT_ROOT]
    inside = [host.AGENT_CURRENT_BINARY, "--version"]

    done = run(_bwrap(), *binds, *own, "--proc", "/proc", "--dev", "/dev", *inside, cwd=Path("/"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{agent.NAME} {code.release()}\n"


def _bwrap() -> str:
    found = shutil.which("bwrap")
    assert found
    return found


def test_program_passes_shellcheck(installed: Installed) -> None:
    program = installed.release / "bin/tart-kubelet"

    done = run_program(["shellcheck", "--shell=sh", program])

    assert (done.returncode, done.stdout) == (0, "")
