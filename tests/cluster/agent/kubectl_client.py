"""Runs kubectl against a stage, and reads an agent's steps from its log."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.process.agent_life.stage import TIMEOUT_SECONDS, Stage


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl as the administrator, in the namespace of a stage."""

    program: Path
    stage: Stage

    def command(self, *arguments: str) -> list[str]:
        """Return the whole command line."""
        kubeconfig = f"--kubeconfig={self.stage.server.kubeconfig}"
        return [str(self.program), kubeconfig, f"--namespace={self.stage.namespace}", *arguments]

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl and return its output."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            stdout, stderr = await process.communicate(stdin.encode())
        assert process.returncode == 0, f"{stderr.decode()}\n{self.stage.log_tail()}"
        return stdout.decode()

    async def pod(self, name: str) -> dict[str, Any]:
        """Return a Pod as kubectl shows it."""
        return dict(json.loads(await self("get", "pod", name, "-o", "json")))

    async def reasons(self, name: str) -> list[str]:
        """Return the reasons of the events about a Pod."""
        about = f"--field-selector=involvedObject.name={name}"
        events = json.loads(await self("get", "events", about, "-o", "json"))["items"]
        return [str(event["reason"]) for event in events]

    @asynccontextmanager
    async def following(self, name: str, into: Path) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run `kubectl logs -f` with its output in a file."""
        with into.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *self.command("logs", "-f", name), stdout=out, stderr=out
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


class ExecutedStep(NamedTuple):
    """A step that an agent executed, and the reconcile that executed it."""

    step: str
    reconcile: str


def steps(stage: Stage, name: str) -> list[ExecutedStep]:
    """Return the steps of a Pod in their order, from the agent's debug log."""
    # The last line may be incomplete.
    whole, _, _ = stage.mac.log.read_text().rpartition("\n")
    lines = [json.loads(line) for line in whole.splitlines()]
    return [
        ExecutedStep(line["step"], line["reconcile"])
        for line in lines
        if line["message"] == "Executing Pod step" and line["vm"] == stage.vm(name)
    ]
