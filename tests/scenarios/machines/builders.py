"""Runners of builders at a simulated GitHub: registered by `config.sh` on a model Mac, online while their launchd job runs.

A builder with a job has the process of a worker, which steps see. A runner whose Mac is reinstalled, rebooted or logged out is offline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from bramley.api.core import Secret
from bramley.api.meta import ObjectMeta
from bramley.api.names import host, launchd, secrets
from bramley.base.clock import Clock
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.github.records import Account, Job, Refusal, Repository, Runner
from bramley.sim.macos import users
from bramley.sim.macos.mac import Mac
from bramley.sim.scaleway.macs import ModelMacs
from tests import github_keys

ORGANISATION = "tuist"
APP_SECRET = "github-app"
_WORKER = f"{host.ACTIONS_RUNNER}/bin/Runner.Worker spawnclient"


@dataclass(slots=True, eq=False)
class _Running:
    """A job that a runner runs on a Mac."""

    job: Job
    pid: int
    task: asyncio.Task[None]


@dataclass(slots=True, eq=False)
class Builders:
    """The runners of all Macs; `run` until cancelled. `forge` is that of the Macs."""

    github: SimulatedGitHub
    # In seconds.
    every: float = 1.0
    # The names of runners that lost their Mac during a job.
    killed: list[str] = field(default_factory=list)
    _online: dict[str, Runner] = field(default_factory=dict)
    _running: dict[str, _Running] = field(default_factory=dict)

    def forge(self, options: Mapping[str, str]) -> str:
        """Register a runner as config.sh does, and return why that is refused."""
        labels = [each for each in options.get("labels", "").split(",") if each]
        owner = _owner(options)
        try:
            self.github.access.require_registration(options["token"], owner)
            self.github.actions.register(
                owner, options["name"], labels, 1, is_ephemeral=False, replaces=True
            )
        except Refusal as refusal:
            return f"Response status code does not indicate success: {refusal.status} ({refusal})."
        return ""

    async def run(self, macs: ModelMacs) -> None:
        """Connect and disconnect the runners, and run their jobs."""
        async with asyncio.TaskGroup() as group:
            while True:
                for server_id, mac in macs.installed.items():
                    self._observe(server_id, mac)
                    self._run_job(group, server_id, mac)
                await asyncio.sleep(self.every)

    @property
    def repository(self) -> Repository:
        """Return a repository of the organisation."""
        return self._account.repositories["images"]

    def app_secret(self, namespace: str) -> Secret:
        """Return the Secret with the credentials of the App."""
        values = {
            secrets.APP_ID: self.github.settings.app_id.encode(),
            secrets.INSTALLATION_ID: str(self._account.installation_id).encode(),
            secrets.PRIVATE_KEY: github_keys.pem(github_keys.rsa_key()),
        }
        return Secret(metadata=ObjectMeta(name=APP_SECRET, namespace=namespace), data=values)

    def online(self) -> list[str]:
        """Return the names of the runners that are online."""
        return sorted(runner.name for runner in self.github.actions.runners.values() if runner.is_online)  # fmt: skip

    def give_job(self, *labels: str, seconds: float = 600.0) -> Job:
        """Queue a job, which a runner with these labels gets."""
        duration = timedelta(seconds=seconds)
        return self.github.actions.queue_job(self.repository, labels=labels, duration=duration)

    @property
    def _account(self) -> Account:
        return self.github.accounts[ORGANISATION]

    def _observe(self, server_id: str, mac: Mac) -> None:
        runner, known = self._loaded(mac), self._online.get(server_id)
        if known is not None and known is not runner:
            del self._online[server_id]
            self.github.actions.lose(known)
        if runner is not None and known is not runner:
            self._online[server_id] = runner
            self.github.actions.connect(self.github.actions.jit_config(runner))

    def _loaded(self, mac: Mac) -> Runner | None:
        """Return the runner whose job is loaded on a Mac; None also if it was removed at GitHub."""
        state = mac.state
        options = state.get("actions_runner", {}).get("options")
        if options is None or not mac.is_up:
            return None
        uid = users.uid_of(state, state["settings"]["user"])
        label = launchd.actions_runner(urlsplit(options["url"]).path.strip("/"), options["name"])
        job = state["launchd"]["jobs"].get(f"{launchd.gui(uid or 0)}/{label}", {})
        if "pid" not in job or not mac.files.is_file(f"{host.ACTIONS_RUNNER}/.credentials"):
            return None
        key = _owner(options).lower(), options["name"]
        runners = self.github.actions.runners.values()
        return next((each for each in runners if (each.owner.lower(), each.name) == key), None)

    def _run_job(self, group: asyncio.TaskGroup, server_id: str, mac: Mac) -> None:
        runner, running = self._online.get(server_id), self._running.get(server_id)
        if running is not None and running.task.done():
            del self._running[server_id]
            _end_process(mac, running.pid)
        elif running is not None and (runner is None or not _has_process(mac, running.pid)):
            del self._running[server_id]
            self.killed.append(running.job.runner_name or "")
            running.task.cancel()
            _end_process(mac, running.pid)
        elif running is None and runner is not None and runner.job is not None:
            task = group.create_task(self.github.actions.finish_job(runner.job, runner))
            self._running[server_id] = _Running(runner.job, _start_process(mac), task)


def a_github(clock: Clock) -> SimulatedGitHub:
    """Return a simulated GitHub with the organisation of the builders and one repository."""
    github = SimulatedGitHub(github_keys.rsa_key().public_key(), clock=clock)
    github.add_account(ORGANISATION)
    github.add_repository(ORGANISATION, "images")
    return github


def _owner(options: Mapping[str, Any]) -> str:
    """Return the owner of the runners, as GitHub's simulation names it."""
    path = urlsplit(options["url"]).path.strip("/")
    return f"/repos/{path}" if "/" in path else f"/orgs/{path}"


def _start_process(mac: Mac) -> int:
    with mac.change() as state:
        state["launchd"]["last_pid_count"] += 1
        pid = int(state["launchd"]["last_pid_count"])
        state["processes"].append({"pid": pid, "command": _WORKER})
    return pid


def _has_process(mac: Mac, pid: int) -> bool:
    return any(each["pid"] == pid for each in mac.state["processes"])


def _end_process(mac: Mac, pid: int) -> None:
    if _has_process(mac, pid):
        with mac.change() as state:
            state["processes"] = [each for each in state["processes"] if each["pid"] != pid]
