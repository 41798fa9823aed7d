"""The two pollers behind one interface: the script of the runner image in processes, and its port under virtual time."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bramley.api.names import runners
from bramley.sim.tart import guest_process
from tests.contract.tart.guest_scripts import guest, shares
from tests.contract.tart.targets import VIRTUAL, Tart, VirtualTimeDriver, run_case
from tests.dispatch_peer import Answer, ConnectionLost, DispatchPeer, Received

TOKEN = "first.token"
TIMEOUT_SECONDS = 120
# Seconds of the script for one of a case.
SCALE = 0.01
LOST = None
_LOGGED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (.*?)(?:, curl exit code \d+)?")
RUNNER = Path(guest_process.__file__).with_name("runner.sh")


@dataclass(frozen=True)
class Case:
    """What the endpoint answers, the last one repeatedly, and what the runner does; in seconds."""

    answers: tuple[Answer | None, ...]
    token: str = TOKEN
    # Replaces the token while the request with this index is answered.
    tokens: Mapping[int, str] = field(default_factory=dict)
    idle_timeout: str = ""
    wait: float = 0
    work: float = 1
    lines: tuple[str, ...] = ("job",)
    code: int = 0


@dataclass(frozen=True)
class Outcome:
    """The exit code that was reported, the tokens of the requests in order, and the messages of the log."""

    code: int
    tokens: tuple[str, ...]
    log: tuple[str, ...]


def endpoint(case: Case, env: Path) -> DispatchPeer:
    """Return an endpoint that answers as the case says, and rotates the token in the share."""

    def choose(_: Received) -> Answer:
        index = len(peer.requests) - 1
        if index in case.tokens:
            write_token(env, case.tokens[index])
        answer = case.answers[min(index, len(case.answers) - 1)]
        if answer is None:
            raise ConnectionLost
        return answer

    peer = DispatchPeer(authenticate=lambda token: token, on_request=choose)
    return peer


def write_token(env: Path, token: str) -> None:
    """Replace the token as the agent does."""
    new = env / ".sa_token.new"
    new.write_text(token)
    new.replace(env / "sa_token")


def outcome(peer: DispatchPeer, status: Path) -> Outcome:
    """Return the outcome; all requests must have the form of the contract."""
    for each in peer.requests:
        assert (each.method, each.path) == ("POST", "/api/internal/runners/dispatch")
        assert (each.headers["content-type"], each.body) == ("application/json", b"{}")
        assert each.headers["authorization"] == f"Bearer {each.token}"
    lines = (status / "runner.log").read_text().splitlines()
    log = tuple(found[1] if (found := _LOGGED.fullmatch(line)) else line for line in lines)
    code = (status / "runner-rc").read_text()
    assert code.endswith("\n")
    return Outcome(int(code), tuple(each.token for each in peer.requests), log)


def run_port(case: Case, root: Path) -> Outcome:
    """Run a guest with the port under virtual time."""
    ended: list[Outcome] = []

    async def main(tart: Tart) -> None:
        script = {name: getattr(case, name) for name in ("wait", "work", "code")}
        guest(tart, **script, lines=list(case.lines))
        await tart.a_vm()
        words = shares(tart)
        env = tart.home.parent / "shares/env"
        if case.token:
            write_token(env, case.token)
        variables = {
            runners.ENV_DISPATCH_URL: "http://peer/api/internal/runners/dispatch",
            runners.ENV_IDLE_TIMEOUT: case.idle_timeout,
        }
        (env / "tuist.env").write_text("".join(f"{k}={v}\n" for k, v in variables.items()))
        peer = endpoint(case, env)
        assert isinstance(tart.driver, VirtualTimeDriver)
        tart.driver.mac.tart.http = peer.answer
        assert (await tart("run", "one", "--no-graphics", *words)).code == 0
        ended.append(outcome(peer, tart.home.parent / "shares/status"))

    run_case(main, VIRTUAL, root)
    return ended[0]


@dataclass
class Script:
    """The folders and variables of the script, for a run as a process."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = ("sh",)

    def __post_init__(self) -> None:
        for folder in (self.env, self.status):
            folder.mkdir(parents=True)

    @property
    def env(self) -> Path:
        return self.root / "shares/env"

    @property
    def status(self) -> Path:
        return self.root / "shares/status"

    @property
    def folder(self) -> Path:
        """Return the folder of the script's own files."""
        return self.root / "folder"

    def runner(self, text: str) -> None:
        """Install a runner."""
        path = self.root / "runner"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)

    def environment(self, url: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            runners.ENV_DISPATCH_URL: url,
            "DISPATCH_POLL_SHARES": str(self.root / "shares"),
            "DISPATCH_POLL_FOLDER": str(self.folder),
            "DISPATCH_POLL_RUNNER": str(self.root / "runner"),
            "DISPATCH_POLL_WORKER": "",
            "DISPATCH_POLL_HALT": f"cp '{self.status}/runner-rc' '{self.root}/halted'",
            "DISPATCH_POLL_SECONDS": str(2 * SCALE),
            **self.variables,
        }

    @contextlib.contextmanager
    def started(self, url: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start the script; at the end of the block none of its processes is left."""
        command = [*self.shell, guest_process.script_path()]
        with subprocess.Popen(
            command, env=self.environment(url), stdin=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def run(self, url: str) -> int:
        """Run the script to its end and return its exit code."""
        with self.started(url) as process:
            return process.wait(TIMEOUT_SECONDS)

    def log(self) -> str:
        path = self.status / "runner.log"
        return path.read_text() if path.exists() else ""


def run_script(case: Case, root: Path) -> Outcome:
    """Run the script in processes."""
    script = Script(root)
    script.runner(f"exec sh '{RUNNER}'")
    if case.token:
        write_token(script.env, case.token)
    idle = case.idle_timeout
    script.variables |= {
        runners.ENV_IDLE_TIMEOUT: str(float(idle) * SCALE) if idle.isdigit() else idle,
        "SIM_RUNNER_WAIT": str(case.wait * SCALE),
        "SIM_RUNNER_LINES": "".join(f"{line}\n" for line in case.lines),
        "SIM_RUNNER_PAUSE": str(case.work / max(len(case.lines), 1) * SCALE),
        "SIM_RUNNER_REST": str(0 if case.lines else case.work * SCALE),
        "SIM_RUNNER_CODE": str(case.code),
    }
    peer = endpoint(case, script.env)
    with peer.serve() as url:
        code = script.run(url)
    ended = outcome(peer, script.status)
    # The VM was halted after the report.
    assert (root / "halted").read_text() == f"{code}\n" == f"{ended.code}\n"
    return ended


POLLERS: dict[str, Callable[[Case, Path], Any]] = {"script": run_script, "port": run_port}
