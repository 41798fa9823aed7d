"""The launcher of a release finds its interpreter from any folder and passes on no environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from bramley.app.agent_bundle import code
from bramley.app.agent_bundle.archive import write_tree
from tests.programs import run_program

INTERPRETER = "3.11.1+0123456789ab"
FLAGS = "-I -S -B -X utf8"


@dataclass(frozen=True, slots=True)
class ReleaseOnDisk:
    """A release on disk, with a fake interpreter that prints its arguments."""

    root: Path

    @property
    def release(self) -> Path:
        return self.root / "1.0.0"

    @property
    def program(self) -> Path:
        return self.release / "bin/tart-kubelet"

    @property
    def python(self) -> Path:
        return self.root / f"python/{INTERPRETER}/bin/python3"

    def run(self, *command: str, cwd: Path | None = None, **variables: str) -> str:
        result = run_program(command, cwd=cwd or "/", env=variables, timeout=60)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout


@pytest.fixture
def release_on_disk(tmp_path: Path) -> ReleaseOnDisk:
    made = ReleaseOnDisk(tmp_path.resolve() / "some root")
    write_tree(code.code_tree({}, INTERPRETER, modules=[]), made.release)
    made.program.chmod(0o755)
    made.python.parent.mkdir(parents=True)
    made.python.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    made.python.chmod(0o755)
    return made


def expected_arguments(release_on_disk: ReleaseOnDisk, *words: str) -> str:
    arguments = [*FLAGS.split(), f"{release_on_disk.release}/start", *words]
    return "".join(f"<{word}>\n" for word in arguments)


def test_environment_is_cleared_and_arguments_are_passed_on(release_on_disk: ReleaseOnDisk) -> None:
    assert release_on_disk.run(
        str(release_on_disk.program), "--node-name", "a b", "", "*"
    ) == expected_arguments(release_on_disk, "--node-name", "a b", "", "*")


def test_agent_runs_from_its_release_and_not_from_the_link(release_on_disk: ReleaseOnDisk) -> None:
    (release_on_disk.root / "current").symlink_to("1.0.0")

    # The link may change later: modules that are imported then come from the same release.
    assert release_on_disk.run(
        str(release_on_disk.root / "current/bin/tart-kubelet")
    ) == expected_arguments(release_on_disk)


def test_absolute_relative_and_chained_links_are_followed(release_on_disk: ReleaseOnDisk) -> None:
    (release_on_disk.root / "current").symlink_to("1.0.0")
    absolute, relative = release_on_disk.root / "absolute", release_on_disk.root / "relative"
    absolute.symlink_to(release_on_disk.root / "current/bin/tart-kubelet")
    relative.symlink_to(os.path.relpath(absolute, release_on_disk.root))

    assert release_on_disk.run(str(relative)) == expected_arguments(release_on_disk)


def test_relative_invocation(release_on_disk: ReleaseOnDisk) -> None:
    folder = release_on_disk.program.parent

    assert release_on_disk.run("./tart-kubelet", cwd=folder) == expected_arguments(release_on_disk)
    assert release_on_disk.run("/bin/sh", "tart-kubelet", cwd=folder) == expected_arguments(
        release_on_disk
    )
    assert release_on_disk.run(
        "bin/tart-kubelet", cwd=release_on_disk.release
    ) == expected_arguments(release_on_disk)


def test_cdpath_is_ignored(release_on_disk: ReleaseOnDisk, tmp_path: Path) -> None:
    (tmp_path / "trap/bin").mkdir(parents=True)

    output = release_on_disk.run(
        "bin/tart-kubelet", cwd=release_on_disk.release, CDPATH=str(tmp_path / "trap")
    )

    assert output == expected_arguments(release_on_disk)


def test_missing_interpreter_is_reported_with_advice(release_on_disk: ReleaseOnDisk) -> None:
    release_on_disk.python.unlink()

    result = run_program([release_on_disk.program], env={}, timeout=60)

    assert result.returncode == 2
    assert f"{release_on_disk.python} is missing; install the interpreter" in result.stderr


def test_data_files_of_the_agent_modules_are_included() -> None:
    output = code.code_tree({}, INTERPRETER, modules=code.agent_imports().modules.values())

    assert "lib/bramley/agent/supervisor.sh" in output
    assert not any(name.endswith((".json", ".gz")) for name in output)


def test_own_version_is_included_as_metadata() -> None:
    notes = f"lib/bramley-{code.release()}.dist-info/METADATA"

    output = code.code_tree({}, INTERPRETER, modules=[])

    assert f"Version: {code.release()}\n".encode() in bytes(output[notes])  # type: ignore[arg-type]
