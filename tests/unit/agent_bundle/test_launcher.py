"""The program of a release finds its interpreter from wherever it is called, and hands on nothing of its caller's."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bramley.app.agent_bundle import code
from bramley.app.agent_bundle.archive import write_tree

INTERPRETER = "3.11.1+0123456789ab"
FLAGS = "-I -S -B -X utf8"


@dataclass(frozen=True, slots=True)
class Laid:
    """A release on disk, with an interpreter that only tells how it was called."""

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
        done = subprocess.run(
            command,
            cwd=cwd or "/",
            env=variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    made = Laid(tmp_path.resolve() / "some root")
    write_tree(code.code_tree({}, INTERPRETER, modules=[]), made.release)
    made.program.chmod(0o755)
    made.python.parent.mkdir(parents=True)
    made.python.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    made.python.chmod(0o755)
    return made


def told(laid: Laid, *words: str) -> str:
    every = [*FLAGS.split(), f"{laid.release}/start", *words]
    return "".join(f"<{word}>\n" for word in every)


def test_it_starts_with_no_environment_and_hands_on_every_word(laid: Laid) -> None:
    assert laid.run(str(laid.program), "--node-name", "a b", "", "*") == told(
        laid, "--node-name", "a b", "", "*"
    )


def test_an_agent_loads_from_its_own_release_also_after_the_link_has_moved_on(laid: Laid) -> None:
    (laid.root / "current").symlink_to("1.0.0")

    # Modules that are loaded later come from there, too.
    assert laid.run(str(laid.root / "current/bin/tart-kubelet")) == told(laid)


def test_links_are_followed_absolute_relative_and_one_behind_the_other(laid: Laid) -> None:
    (laid.root / "current").symlink_to("1.0.0")
    absolute, relative = laid.root / "absolute", laid.root / "relative"
    absolute.symlink_to(laid.root / "current/bin/tart-kubelet")
    relative.symlink_to(os.path.relpath(absolute, laid.root))

    assert laid.run(str(relative)) == told(laid)


def test_it_may_be_called_from_where_it_lies(laid: Laid) -> None:
    folder = laid.program.parent

    assert laid.run("./tart-kubelet", cwd=folder) == told(laid)
    assert laid.run("/bin/sh", "tart-kubelet", cwd=folder) == told(laid)
    assert laid.run("bin/tart-kubelet", cwd=laid.release) == told(laid)


def test_a_search_path_for_folders_leads_nowhere(laid: Laid, tmp_path: Path) -> None:
    (tmp_path / "trap/bin").mkdir(parents=True)

    found = laid.run("bin/tart-kubelet", cwd=laid.release, CDPATH=str(tmp_path / "trap"))

    assert found == told(laid)


def test_a_missing_interpreter_is_said_with_what_to_do(laid: Laid) -> None:
    laid.python.unlink()

    done = subprocess.run(
        [laid.program], env={}, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2
    assert f"{laid.python} is missing; install the interpreter" in done.stderr


def test_what_lies_beside_the_agents_modules_travels_with_them() -> None:
    found = code.code_tree({}, INTERPRETER, modules=code.agent_imports().modules.values())

    assert "lib/bramley/agent/supervisor.sh" in found
    assert not any(name.endswith((".json", ".gz")) for name in found)


def test_our_own_version_travels_as_notes_that_python_reads() -> None:
    notes = f"lib/bramley-{code.release()}.dist-info/METADATA"

    found = code.code_tree({}, INTERPRETER, modules=[])

    assert f"Version: {code.release()}\n".encode() in bytes(found[notes])  # type: ignore[arg-type]
