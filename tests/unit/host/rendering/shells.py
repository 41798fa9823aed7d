"""A real shell that runs rendered commands in its own folder, with stand-ins for programs first in PATH."""

from __future__ import annotations

import base64
import contextlib
import getpass
import grp
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bramley.api.names import host as names
from bramley.host.claim import Guard
from bramley.host.commands import Batchable, Probe
from bramley.host.facts import ProbeResult
from bramley.host.rendering import batch_scripts, command_scripts, probe_scripts

TOKEN = "0123456789abcdef"
PROBE_TOKEN = "fedcba9876543210"
OWNER = f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}"
# dash on Debian, and bash in POSIX mode, which is sh on macOS.
SHELLS = {"sh": "/bin/sh", "bash": "bash --posix"}
WITHIN = 60


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a rendered command."""

    code: int
    output: bytes
    stderr: bytes

    @property
    def has_begun(self) -> bool:
        return TOKEN.encode() in self.output


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """The result of a rendered batch."""

    code: int
    progress: batch_scripts.Progress
    stderr: bytes
    output: bytes


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell, and the folder that stands for a Mac."""

    home: Path
    name: str = "sh"

    @classmethod
    def make(cls, home: Path, name: str = "sh") -> Shell:
        shell = cls(home, name)
        shell.install(
            "sudo",
            'while [ "$1" != -- ] && [ "$1" != true ]; do shift; done\n[ "$1" != -- ] || shift\nexec "$@"\n',
        )
        shell.install("sync", "exit 0\n")
        return shell

    @property
    def programs(self) -> Path:
        return self.home / "programs"

    def install(self, name: str, text: str) -> None:
        self.programs.mkdir(exist_ok=True)
        (self.programs / name).write_text(f"#!/bin/sh\n{text}")
        (self.programs / name).chmod(0o755)

    @contextlib.contextmanager
    def running(self, line: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command line with its standard input open."""
        interpreter = SHELLS[self.name].split()
        text = line.replace("/bin/sh -c", f"{SHELLS[self.name]} -c")
        process = subprocess.Popen(
            [*interpreter, "-c", text],
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
                # The process may have ended without reading all its input.
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()  # type: ignore[union-attr]

    def execute(
        self,
        command: command_scripts.Rendered,
        *,
        stdin: bytes | None = None,
        is_closed: bool = False,
    ) -> Result:
        """Run a command with its own input, or with `stdin`; with `is_closed`, close the input afterwards."""
        script = command_scripts.render(command, token=TOKEN)
        with self.running(script.line) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(script.input.reveal_bytes() if stdin is None else stdin)
                process.stdin.flush()
                if is_closed:
                    process.stdin.close()
            errors = process.stderr.read()
            output = process.stdout.read()
            return Result(process.wait(WITHIN), output, errors)

    def execute_all(
        self,
        commands: Sequence[Batchable],
        *,
        guard: Guard | None = None,
        claim: str = "",
        token: str = TOKEN,
        probes: Sequence[Probe] = (),
    ) -> BatchOutput:
        """Run a batch to its end; `claim` is the path of the claim's file here."""
        with self.running_batch(
            commands, guard=guard, claim=claim, token=token, probes=probes
        ) as process:
            output, errors = read_to_end(process)
        return BatchOutput(
            process.returncode, batch_scripts.parse_progress(output, token=token), errors, output
        )

    @contextlib.contextmanager
    def running_batch(
        self,
        commands: Sequence[Batchable],
        *,
        guard: Guard | None = None,
        claim: str = "",
        token: str = TOKEN,
        probes: Sequence[Probe] = (),
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a batch and send its program; the input stays open."""
        then = probe_scripts.render(probes, token=PROBE_TOKEN)[0] if probes else None
        script = batch_scripts.render(commands, token=token, user="m1", guard=guard, then=then)
        line = script.line.replace(names.CLAIM, claim or names.CLAIM)
        program = (
            base64.b64decode(script.input.reveal())
            .replace(names.CLAIM.encode(), (claim or names.CLAIM).encode())
            .replace(b"root:wheel", OWNER.encode())
        )
        encoded = base64.b64encode(program)
        line = line.replace(f" {len(script.input.reveal())} ", f" {len(encoded)} ", 1)
        with self.running(line) as process:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(encoded)
                process.stdin.flush()
            yield process

    def probe(self, probes: Sequence[Probe], *, noise: str = "") -> dict[Probe, ProbeResult]:
        """Run probes; `noise` is a command of the login shell that runs first."""
        answers: dict[Probe, ProbeResult] = {}
        for script in probe_scripts.render(probes, token=TOKEN):
            with self.running(f"{noise}\n{script.line}") as process:
                output, _ = process.communicate(timeout=WITHIN)
            answers |= probe_scripts.parse_results(script, token=TOKEN, output=output)
        return answers


def read_to_end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return the outputs of a process whose input stays open until it has ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    errors = process.stderr.read()
    output = process.stdout.read()
    process.wait(WITHIN)
    return output, errors


def available() -> list[str]:
    """Return the shells that are installed."""
    return [name for name, command in SHELLS.items() if shutil.which(command.split()[0])]


def tree(folder: Path) -> dict[str, bytes | str]:
    """Return everything below a folder, by its path."""
    answers: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            answers[name] = f"-> {os.readlink(path)}"  # noqa: PTH115 - a Path would normalize it
        elif path.is_file():
            answers[name] = path.read_bytes()
        else:
            answers[name] = "folder"
    return answers
