"""The two pollers behind one interface: the script of the runner image in processes, and its port under virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bramley.api.names import runners
from bramley.sim.tart import guest_process
from bramley.sim.tart.effects import HttpAnswer
from tests.contract.tart.guest_scripts import guest, shares
from tests.contract.tart.targets import VIRTUAL, Tart, VirtualTimeDriver, run_case
from tests.dispatch_peer import Answer, ConnectionLost, DispatchPeer, Received

TOKEN = "first.token"
TIMEOUT_SECONDS = 120
# Seconds of the script for one of a case.
SCALE = 0.01
# How long a poll is held, not scaled: the shortest poll that counts as held is fixed.
HOLD_SECONDS = 1.1
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
    # The indexes of requests that are held before they are answered.
    holds: frozenset[int] = frozenset()
    long_poll: int = 50
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
    # The header `Prefer` of each request, empty without it, and the seconds of each pause between two requests.
    preferences: tuple[str, ...] = field(default=(), compare=False)
    pauses: tuple[float, ...] = field(default=(), compare=False)


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


def is_held(case: Case, peer: DispatchPeer) -> bool:
    """Return whether the newest request is one that is held."""
    return len(peer.requests) - 1 in case.holds


def outcome(peer: DispatchPeer, status: Path, pauses: Iterable[float]) -> Outcome:
    """Return the outcome; all requests must have the form of the contract."""
    for each in peer.requests:
        assert (each.method, each.path) == ("POST", "/api/internal/runners/dispatch")
        assert (each.headers["content-type"], each.body) == ("application/json", b"{}")
        assert each.headers["authorization"] == f"Bearer {each.token}"
    lines = (status / "runner.log").read_text().splitlines()
    log = tuple(found[1] if (found := _LOGGED.fullmatch(line)) else line for line in lines)
    code = (status / "runner-rc").read_text()
    assert code.endswith("\n")
    return Outcome(
        int(code),
        tuple(each.token for each in peer.requests),
        log,
        tuple(each.headers.get("prefer", "") for each in peer.requests),
        tuple(pauses),
    )


def run_port(case: Case, root: Path) -> Outcome:
    """Run a guest with the port under virtual time."""
    ended, answered = list[Outcome](), list[float]()

    async def main(tart: Tart) -> None:
        script = {name: getattr(case, name) for name in ("wait", "work", "code", "long_poll")}
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
        peer.now = tart.driver.now

        async def exchange(*request: Any) -> HttpAnswer:
            try:
                status, body, *headers = peer.answer(*request)
                if is_held(case, peer):
                    await asyncio.sleep(HOLD_SECONDS)
            finally:
                answered.append(tart.driver.now())
            lower = {name.lower(): value for each in headers for name, value in each.items()}
            return HttpAnswer(status, body, lower)

        tart.driver.mac.tart.http = exchange
        assert (await tart("run", "one", "--no-graphics", *words)).code == 0
        times = itertools.pairwise(peer.requests)
        pauses = [b.at - end for end, (_, b) in zip(answered, times, strict=False)]
        status = tart.home.parent / "shares/status"
        ended.append(outcome(peer, status, (each for each in pauses if each > 0.1)))

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

    def record_sleep(self) -> None:
        """Record the arguments of each `sleep` of the script in a file."""
        programs = self.root / "programs"
        programs.mkdir()
        path = programs / "sleep"
        real = shutil.which("sleep")
        path.write_text(f'#!/bin/sh\necho "$1" >>"{self.root}/pauses"\nexec {real} "$1"\n')
        path.chmod(0o700)
        self.variables["PATH"] = f"{programs}:{os.environ['PATH']}"

    def pauses(self) -> list[float]:
        """Return the recorded pauses."""
        path = self.root / "pauses"
        return [float(line) for line in path.read_text().split()] if path.exists() else []

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
    script.record_sleep()
    script.variables |= {
        "DISPATCH_POLL_WAIT_SECONDS": str(case.long_poll),
        runners.ENV_IDLE_TIMEOUT: str(float(idle) * SCALE) if idle.isdigit() else idle,
        "SIM_RUNNER_WAIT": str(case.wait * SCALE),
        "SIM_RUNNER_LINES": "".join(f"{line}\n" for line in case.lines),
        "SIM_RUNNER_PAUSE": str(case.work / max(len(case.lines), 1) * SCALE),
        "SIM_RUNNER_REST": str(0 if case.lines else case.work * SCALE),
        "SIM_RUNNER_CODE": str(case.code),
    }
    peer = endpoint(case, script.env)
    choose = peer.on_request

    def hold(received: Received) -> Answer | None:
        if is_held(case, peer):
            time.sleep(HOLD_SECONDS)
        return choose(received)

    peer.on_request = hold
    with peer.serve() as url:
        code = script.run(url)
    ended = outcome(peer, script.status, (each / SCALE for each in script.pauses()))
    # The VM was halted after the report.
    assert (root / "halted").read_text() == f"{code}\n" == f"{ended.code}\n"
    return ended


POLLERS: dict[str, Callable[[Case, Path], Any]] = {"script": run_script, "port": run_port}
