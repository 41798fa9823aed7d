"""The runner of a guest under virtual time: a port of `runner.sh`, which is that of a guest that is a process.

A configuration of the simulated GitHub may name its URL. Then the runner runs one of its jobs there, and otherwise that of the
guest's script. One suite, `tests/process/poller`, holds both to the same requests and results: change them together.
"""

import base64
import json
from collections.abc import Generator
from typing import Any

from bramley.api.names import guest as names
from bramley.sim.tart import effects
from bramley.sim.tart.effects import Effect
from bramley.sim.tart.guest import FOREVER, Guest, grow_disk, run_job, write
from bramley.sim.tart.guest_requests import exchange

_JSON = {"Content-Type": "application/json"}
FAILED = 1


class Runner:
    """Runs one job; after `idle` seconds without one it is terminated."""

    def __init__(self, guest: Guest, configuration: str, idle: float) -> None:
        self.guest = guest
        self.configuration = configuration
        self.idle = idle
        self.had_job = False

    def run(self) -> Generator[Effect, Any, int | None]:
        """Wait for a job and run it; return the exit code, None if the runner was idle for too long."""
        wait = self.guest.duration("wait")
        if self.idle <= wait:
            yield from self.guest.pause(self.idle)
            return None
        yield from self.guest.pause(wait)
        url = find_url(self.configuration)
        if url:
            return (yield from self._run_on_github(url, self.idle - wait))
        self.had_job = True
        yield from run_job(self.guest)
        return int(self.guest.script["code"] or 0)

    def _run_on_github(self, url: str, idle: float) -> Generator[Effect, Any, int | None]:
        self._print("Listening for jobs")
        started = yield from self._post(f"{url}/sim/runners", idle, until="start")
        if started is None:
            return None
        if (code := self._failure(started)) is not None:
            return code
        self.had_job = True
        job = json.loads(started.body)["job"]
        self._print(f"Running job {job['name']}")
        ended = yield from self._post(f"{url}/sim/jobs/{job['id']}/run", FOREVER)
        if ended is None or (code := self._failure(ended)) is not None:
            return FAILED
        grow_disk(self.guest)
        answer = json.loads(ended.body)
        conclusion = answer["job"]["conclusion"]
        self._print(f"Job {job['name']} ended after {answer['seconds']} s: {conclusion}")
        return 0

    def _post(
        self, url: str, seconds: float, **fields: str
    ) -> Generator[Effect, Any, effects.HttpAnswer | None]:
        body = json.dumps({"encoded_jit_config": self.configuration, **fields}).encode()
        request = effects.SendRequest("POST", url, _JSON, body)
        return (yield from exchange(self.guest, request, seconds))

    def _failure(self, answer: effects.HttpAnswer) -> int | None:
        """Return the exit code if the runner has no job, and print why."""
        if answer.status == 0:
            self._print("Connection to GitHub lost")
        elif answer.status != 200:
            self._print(f"GitHub refused the runner with status {answer.status}")
        elif json.loads(answer.body)["job"] is None:
            self._print("The runner was removed from GitHub")
        else:
            return None
        return FAILED

    def _print(self, line: str) -> None:
        write(self.guest, names.LOG_FILE, line + "\n", mode="a")


def find_url(configuration: str) -> str:
    """Return the URL of the simulated GitHub in a JIT configuration; empty if it has none."""
    try:
        content = json.loads(base64.b64decode(configuration, validate=True))
    except ValueError:
        return ""
    url = content.get("url") if isinstance(content, dict) else None
    return url if isinstance(url, str) else ""
