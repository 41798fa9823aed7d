"""A real shell of this machine that runs what was rendered, in a folder of its own, with stand-ins first on its path."""

from __future__ import annotations

import contextlib
import getpass
import grp
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bramley.host.commands import Probe
from bramley.host.facts import Answer
from bramley.host.rendering import doing, looking

TOKEN = "0123456789abcdef"
OWNER = f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}"
# dash where Debian has it, and what macOS calls sh.
SHELLS = {"sh": "/bin/sh", "bash": "bash --posix"}
WITHIN = 60


@dataclass(frozen=True, slots=True)
class Result:
    """How a rendered command ended."""

    code: int
    output: bytes
    said: bytes

    @property
    def has_begun(self) -> bool:
        return TOKEN.encode() in self.output


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell, and the folder that is a Mac to it."""

    home: Path
    name: str = "sh"

    @classmethod
    def make(cls, home: Path, name: str = "sh") -> Shell:
        made = cls(home, name)
        made.install(
            "sudo",
            'while [ "$1" != -- ] && [ "$1" != true ]; do shift; done\n[ "$1" != -- ] || shift\nexec "$@"\n',
        )
        made.install("sync", "exit 0\n")
        return made

    @property
    def programs(self) -> Path:
        return self.home / "programs"

    def install(self, name: str, text: str) -> None:
        self.programs.mkdir(exist_ok=True)
        (self.programs / name).write_text(f"#!/bin/sh\n{text}")
        (self.programs / name).chmod(0o755)

    @contextlib.contextmanager
    def running(self, line: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command line, with its input open."""
        shell = SHELLS[self.name].split()
        text = line.replace("/bin/sh -c", f"{SHELLS[self.name]} -c")
        process = subprocess.Popen(
            [*shell, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"},
            start_new_session=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()
                # What it did not want to hear cannot be given to it any more.
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()  # type: ignore[union-attr]

    def do(
        self, command: doing.Rendered, *, given: bytes | None = None, is_cut: bool = False
    ) -> Result:
        """Run a command and give it what it takes, or something else; `is_cut`: and then hang up."""
        script = doing.render(command, token=TOKEN)
        with self.running(script.line) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(script.given.reveal_bytes() if given is None else given)
                process.stdin.flush()
                if is_cut:
                    process.stdin.close()
            said = process.stderr.read()
            output = process.stdout.read()
            return Result(process.wait(WITHIN), output, said)

    def look(self, probes: Sequence[Probe], *, noise: str = "") -> dict[Probe, Answer]:
        """Ask questions; `noise` is what a login shell prints first."""
        found: dict[Probe, Answer] = {}
        for question in looking.render(probes, token=TOKEN):
            with self.running(f"{noise}\n{question.line}") as process:
                output, _ = process.communicate(timeout=WITHIN)
            found |= looking.answers(question, token=TOKEN, output=output)
        return found


def available() -> list[str]:
    """Return the shells that this machine has."""
    return [name for name, command in SHELLS.items() if shutil.which(command.split()[0])]


def tree(folder: Path) -> dict[str, bytes | str]:
    """Return everything below a folder, by its path."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"  # noqa: PTH115 - a Path would tidy it up
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "folder"
    return found
