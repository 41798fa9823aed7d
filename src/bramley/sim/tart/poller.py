"""The poller of a simulated guest: it polls the dispatch endpoint for one job, runs it and reports.

A guest that is a process runs the script of the runner image, `images/runner/dispatch-poll.sh`. Under virtual time the same loop runs
here. One suite, `tests/process/poller`, holds both to the same requests and results: change them together.
"""

import json
import os
import time
from collections.abc import Generator
from typing import Any

from bramley.api.names import guest as names
from bramley.api.names import runners
from bramley.sim.tart import effects
from bramley.sim.tart.effects import Effect, HttpAnswer, SendRequest
from bramley.sim.tart.guest import (
    FOREVER,
    Guest,
    grow_disk,
    leave_plants,
    report,
    status_share,
    substitute,
    write,
)
from bramley.sim.tart.guest_requests import exchange
from bramley.sim.tart.guest_runner import Runner

REQUEST_SECONDS = 10.0
# The wait that a server is recognized by; a poll that is answered sooner was not held.
MIN_HOLD_SECONDS = 1
# The longest pause after failures, in intervals of the short poll.
MAX_BACKOFF = 15
# Polls with a refused token before the guest gives up: a minute.
REFUSAL_LIMIT = 30
# Of equal messages in a row, one of so many is logged.
LOG_INTERVAL = 30
# Starting curl more often would occupy the machine that simulates many guests.
MIN_POLL_SECONDS = 0.25
# In the guest's folder; the job-started hook of the script creates it.
JOB_MARKER = "job-started"
FOLDER = "poller"
_REFUSED = frozenset({401, 403})
NO_ANSWER = HttpAnswer(0)


def poll(guest: Guest) -> Generator[Effect, Any, bool]:
    """Poll until the endpoint has a job or ends the guest; return whether a job was started."""
    folder = os.path.join(guest.bundle, FOLDER)
    variables = {**_poller_variables(guest), **_runner_variables(guest)}
    has_process: bool = yield effects.StartPoller(folder, variables)
    if has_process:
        guest.has_poller_process = True
        return (yield from _follow(guest, folder))
    return (yield from Poller(guest).run())


def _follow(guest: Guest, folder: str) -> Generator[Effect, Any, bool]:
    """Serve requests until the script has exited."""
    code: int | None = yield effects.PollerExit()
    while code is None:
        yield from guest.serve_once(FOREVER)
        code = yield effects.PollerExit()
    had_job = os.path.exists(os.path.join(folder, JOB_MARKER))
    if had_job:
        grow_disk(guest)
    share = status_share(guest)
    if share is not None and had_job and guest.script["code"] is None:
        # The script always reports, and this guest is to end without a report.
        os.unlink(os.path.join(share, names.EXIT_CODE_FILE))
    else:
        leave_plants(guest)
    return had_job


def _poller_variables(guest: Guest) -> dict[str, str]:
    share = guest.plan.shares.get(names.ENV_SHARE, {"path": guest.bundle})
    poll_seconds = max(guest.context.settings.seconds("poll"), MIN_POLL_SECONDS)
    return {
        runners.ENV_DISPATCH_URL: guest.variables[runners.ENV_DISPATCH_URL],
        runners.ENV_IDLE_TIMEOUT: _decimal(idle_seconds(guest)),
        "DISPATCH_POLL_TOKEN_FILE": os.path.join(share["path"], names.TOKEN_FILE),
        # Without a share, a folder that does not exist.
        "DISPATCH_POLL_STATUS_FOLDER": status_share(guest) or os.path.join(guest.bundle, "none"),
        "DISPATCH_POLL_SECONDS": _decimal(poll_seconds),
        "DISPATCH_POLL_WAIT_SECONDS": str(int(guest.script["long_poll"])),
        "DISPATCH_POLL_WORKER": "",
        # The guest halts when its poller has exited.
        "DISPATCH_POLL_HALT": ":",
    }


def _runner_variables(guest: Guest) -> dict[str, str]:
    lines = [substitute(line, guest) for line in guest.script["lines"]]
    work = guest.duration("work")
    return {
        "SIM_RUNNER_WAIT": _decimal(guest.duration("wait")),
        "SIM_RUNNER_LINES": "".join(f"{line}\n" for line in lines),
        "SIM_RUNNER_PAUSE": _decimal(work / max(len(lines), 1)),
        "SIM_RUNNER_REST": _decimal(0 if lines else work),
        "SIM_RUNNER_CODE": str(guest.script["code"] or 0),
    }


def _decimal(seconds: float) -> str:
    """Return a number as `sleep` and the shell read it, without an exponent."""
    return f"{seconds:.6f}"


def idle_seconds(guest: Guest) -> float:
    """Return after how long a runner without a job is terminated; 0 for never, as without a valid number."""
    try:
        seconds = float(guest.variables.get(runners.ENV_IDLE_TIMEOUT, "0"))
    except ValueError:
        return 0.0
    return max(seconds, 0.0) * guest.context.settings.scale


class Poller:
    """The loop of the script under virtual time."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.url = guest.variables[runners.ENV_DISPATCH_URL]
        self.token = ""
        self.refused_token = ""
        self.refusals = 0
        self.noted = ""
        self.note_count = 0
        self.had_job = False
        self.has_long_poll = False
        self.failures = 0
        self.pause_seconds = 0.0

    def run(self) -> Generator[Effect, Any, bool]:
        """Poll until there is an exit code, and report it."""
        self._log("Polling for a job")
        code: int | None = yield from self._poll()
        while code is None:
            yield from self.guest.pause(self.pause_seconds)
            code = yield from self._poll()
        self._log(f"Poller ended with exit code {code}")
        if not self.had_job or self.guest.script["code"] is not None:
            report(self.guest, code)
        return self.had_job

    def _poll(self) -> Generator[Effect, Any, int | None]:
        """Send one request; return the exit code if it is the last."""
        self.pause_seconds = self.guest.context.settings.seconds("poll")
        # Read before each poll: the host replaces the token before it expires.
        self.token = _read_token(self.guest)
        if not self.token:
            return self._count_refusal("Token missing")
        answer = yield from self._request()
        status = answer.status
        if status in _REFUSED:
            return self._count_refusal("Token refused")
        self.refused_token, self.refusals = "", 0
        if configuration := _configuration(answer):
            return (yield from self._run_runner(configuration))
        if status == 410:
            self._log("Drained")
            return 0
        self._note(_message(status))
        return None

    def _request(self) -> Generator[Effect, Any, HttpAnswer]:
        """Send one request, and choose the pause after its answer."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        wait, limit = int(self.guest.script["long_poll"]), REQUEST_SECONDS
        if self.has_long_poll:
            limit += wait
        elif wait:
            # A server that hangs is given up as early as by a short poll.
            wait = MIN_HOLD_SECONDS
        if wait:
            headers["Prefer"] = f"wait={wait}"
        began = self.guest.context.now()
        request = SendRequest("POST", self.url, headers, b"{}")
        answer = (yield from exchange(self.guest, request, limit)) or NO_ANSWER
        if answer.status == 204:
            self.has_long_poll = "wait=" in answer.headers.get("preference-applied", "")
        self._choose_pause(answer.status, self.guest.context.now() - began)
        return answer

    def _choose_pause(self, status: int, seconds: float) -> None:
        """Choose the pause after an answer that took so long; an old server is polled at regular intervals."""
        has_failed = status in {0, 429} or status >= 500
        if has_failed and self.has_long_poll:
            factor = 0.5 + int.from_bytes(self.guest.context.entropy(2)) / 65536
            self.pause_seconds *= min(2**self.failures, MAX_BACKOFF) * factor
            self.failures += 1
            return
        self.failures = 0
        # A server that does not hold the request must not be polled without a pause.
        if status == 204 and self.has_long_poll and seconds >= MIN_HOLD_SECONDS:
            self.pause_seconds = 0.0

    def _count_refusal(self, message: str) -> int | None:
        if self.token != self.refused_token:
            self.refused_token, self.refusals = self.token, 0
        if self.refusals >= REFUSAL_LIMIT:
            self._log("Token refused for too long")
            return 1
        self.refusals += 1
        self._note(message)
        return None

    def _run_runner(self, configuration: str) -> Generator[Effect, Any, int]:
        """Run the runner until it exits or was idle for too long; return its exit code."""
        self._log("Starting runner")
        runner = Runner(self.guest, configuration, idle_seconds(self.guest) or FOREVER)
        code: int | None = yield from runner.run()
        self.had_job = runner.had_job
        if code is None:
            self._log("Terminating runner that got no job")
        return code or 0

    def _note(self, message: str) -> None:
        """Log the first of equal messages in a row, and then one per interval."""
        if message != self.noted:
            self.noted, self.note_count = message, 0
        if self.note_count % LOG_INTERVAL == 0:
            self._log(message)
        self.note_count += 1

    def _log(self, message: str) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.guest.context.now()))
        write(self.guest, names.LOG_FILE, f"{at} {message}\n", mode="a")


def _read_token(guest: Guest) -> str:
    share = guest.plan.shares.get(names.ENV_SHARE)
    if share is None:
        return ""
    try:
        with open(os.path.join(share["path"], names.TOKEN_FILE), encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _configuration(answer: HttpAnswer) -> str:
    """Return the configuration of a runner; empty if there is none."""
    try:
        content = json.loads(answer.body) if answer.status == 200 else None
    except ValueError:
        return ""
    return str(content.get("encoded_jit_config") or "") if isinstance(content, dict) else ""


def _message(status: int) -> str:
    known = {0: "No answer", 200: "Answer without a runner configuration", 204: "No job"}
    return known.get(status, f"Unexpected answer {status}")
