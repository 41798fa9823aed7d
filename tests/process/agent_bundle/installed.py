"""Installs the agent archives below another root, as the steps of a host do it: unpack beside, rename, move the link."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bramley.api.names import host
from bramley.app.agent_bundle.archive import Archive
from tests.programs import run_program
from tools.agent_bundle.linux import AgentArchives

TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Installed:
    """An agent below a root."""

    root: Path
    archives: AgentArchives

    @property
    def program(self) -> Path:
        return self.of(host.AGENT_BINARY)

    @property
    def python(self) -> Path:
        return self.of(self.archives.interpreter.manifest.folder) / "bin/python3"

    @property
    def release(self) -> Path:
        return self.of(self.archives.code.manifest.folder)

    def of(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def switch_to(self, version: str) -> None:
        fresh = self.of(f"{host.AGENT_CURRENT}.new")
        fresh.symlink_to(version)
        fresh.rename(self.of(host.AGENT_CURRENT))

    def unpack(self, archive: Archive) -> None:
        folder = self.of(archive.manifest.folder)
        unfinished = folder.with_name(f"{folder.name}.new")
        unfinished.mkdir(parents=True)
        command = ["tar", "-xzf", str(archive.path), "-C", str(unfinished)]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS)
        unfinished.rename(folder)


def install(archives: AgentArchives, root: Path) -> Installed:
    made = Installed(root, archives)
    made.unpack(archives.interpreter)
    made.unpack(archives.code)
    made.switch_to(archives.code.manifest.version)
    made.program.parent.mkdir(parents=True)
    made.program.symlink_to(made.of(host.AGENT_CURRENT_BINARY))
    return made


def run(*command: Path | str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with no environment at all."""
    return run_program(command, env={}, cwd=cwd, timeout=TIMEOUT_SECONDS)
