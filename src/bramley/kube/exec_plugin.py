"""Credentials from a program: the exec plugins of kubeconfig files.

The program is run without a terminal, in its own process group and within a deadline; what it prints is an ExecCredential.
Its answer is kept until it expires or the server refuses it. Neither its output nor the values of its environment reach a
log or an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bramley.api.meta import Fields, Time
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.secret import Secret, redact
from bramley.kube.credentials import Credential, as_secret, bearer
from bramley.kube.tls import ClientCertificate

logger = log.get(__name__)

LONGEST_OUTPUT_BYTES = 1024 * 1024
SHOWN_STDERR = 500
DEADLINE = timedelta(seconds=60)
# A server that refuses fresh credentials must not make us start a program for each request.
REST_BETWEEN_RUNS = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Plugin:
    """The program to run, and what a kubeconfig says about it."""

    command: str
    arguments: tuple[str, ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    environment: Mapping[str, Secret] = field(default_factory=dict)
    cluster: Mapping[str, Any] | None = None
    install_hint: str = ""
    source: str = "kubeconfig"


class _ExecStatus(Fields, frozen=True, kw_only=True):
    token: Secret | None = None
    client_certificate_data: str = ""
    client_key_data: Secret | None = None
    expiration_timestamp: Time | None = None


class _ExecCredential(Fields, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


_ANSWER = msgspec.json.Decoder(_ExecCredential, dec_hook=as_secret)


class ExecPlugin:
    """Runs a plugin when its last answer is used up."""

    def __init__(
        self,
        plugin: Plugin,
        *,
        clock: Clock,
        environment: Mapping[str, str],
        deadline: timedelta = DEADLINE,
    ) -> None:
        self._plugin = plugin
        self._clock = clock
        self._environment = environment
        self._deadline = deadline
        self._held: Credential | None = None
        self._expires: datetime | None = None
        self._ran_at = 0.0
        self._running = asyncio.Lock()

    async def current(self) -> Credential:
        """Return the credential at hand, or run the program for a new one; all who wait share one run."""
        async with self._running:
            if self._held is None or self._expired():
                return await self._renew()
            return self._held

    async def refused(self, credential: Credential) -> bool:
        """Run the program again, unless another caller just did."""
        async with self._running:
            if self._held == credential and not self._just_ran():
                await self._renew()
            return self._held != credential

    def _expired(self) -> bool:
        return self._expires is not None and self._expires <= self._clock.now()

    def _just_ran(self) -> bool:
        return self._clock.monotonic() - self._ran_at < REST_BETWEEN_RUNS.total_seconds()

    async def _renew(self) -> Credential:
        logger.debug("Running the credential plugin", command=self._plugin.command)
        answer = self._parsed(await self._output())
        self._held = self._credential(answer)
        self._expires = answer.expiration_timestamp
        self._ran_at = self._clock.monotonic()
        return self._held

    def _credential(self, answer: _ExecStatus) -> Credential:
        token = answer.token and bearer(answer.token.reveal(), f"{self._named()}: its token")
        certificate = None
        if answer.client_certificate_data and answer.client_key_data:
            certificate = ClientCertificate(
                answer.client_certificate_data, answer.client_key_data, source=self._named()
            )
        if token is None and certificate is None:
            raise self._bad("it gave neither a token nor a client certificate with its key")
        return Credential(token, certificate)

    def _parsed(self, output: bytes) -> _ExecStatus:
        try:
            answer = _ANSWER.decode(output)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # The cause is dropped on purpose: its text could quote the output, which holds a token.
            raise self._bad("what it printed is no ExecCredential in JSON") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._plugin.api_version:
            wanted = f"ExecCredential of {self._plugin.api_version}"
            raise self._bad(f"it printed a {answer.kind!r} of {answer.api_version!r}, not {wanted}")
        if answer.status is None:
            raise self._bad("its ExecCredential has no status")
        return answer.status

    async def _output(self) -> bytes:
        process = await self._start()
        ended = False
        try:
            async with asyncio.timeout(self._deadline.total_seconds()):
                output, told = await _collected(process)
            ended = True
        except TimeoutError:
            raise self._failed(f"it did not end within {self._deadline}") from None
        finally:
            if not ended:
                await _kill(process)
        if process.returncode != 0:
            raise self._failed(f"it failed with code {process.returncode}{self._shown(told)}")
        return output

    async def _start(self) -> asyncio.subprocess.Process:
        started = await _undivided(self._try_to_start())
        if not isinstance(started, Exception):
            return started
        hint = f"; {self._plugin.install_hint.strip()}" if self._plugin.install_hint else ""
        reason = getattr(started, "strerror", None) or type(started).__name__
        raise self._bad(f"it cannot be started ({reason}){hint}") from started

    async def _try_to_start(self) -> Started:
        try:
            return await asyncio.create_subprocess_exec(
                self._plugin.command,
                *self._plugin.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._child_environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return error

    def _child_environment(self) -> dict[str, str]:
        extra = {name: value.reveal() for name, value in self._plugin.environment.items()}
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.cluster is not None:
            spec["cluster"] = self._plugin.cluster
        question = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        told = msgspec.json.encode(question).decode()
        return {**self._environment, **extra, "KUBERNETES_EXEC_INFO": told}

    def _shown(self, told: bytes) -> str:
        text = told.decode(errors="replace").strip()
        text = redact(text, *self._plugin.environment.values())[-SHOWN_STDERR:]
        return f": {text}" if text else ""

    def _named(self) -> str:
        return f"{self._plugin.source}: exec plugin {self._plugin.command!r}"

    def _bad(self, problem: str) -> errors.BadConfiguration:
        return errors.BadConfiguration(f"{self._named()}: {problem}")

    def _failed(self, problem: str) -> errors.ApiUnavailable:
        # Unlike a program that is not there or speaks another language, one that fails may work the next time.
        return errors.ApiUnavailable(f"{self._named()}: {problem}")


Started = asyncio.subprocess.Process | OSError | ValueError


async def _undivided(starting: Coroutine[Any, Any, Started]) -> Started:
    """Wait for the start even when cancelled: asyncio waits for ever on a half-started program with children."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(starting)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            begun = await task
            if not isinstance(begun, Exception):
                await _kill(begun)
            raise


async def _collected(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    async with asyncio.TaskGroup() as group:
        output = group.create_task(_bounded(process.stdout))
        told = group.create_task(_bounded(process.stderr))
    await process.wait()
    return output.result(), told.result()


async def _bounded(pipe: asyncio.StreamReader | None) -> bytes:
    """Read a pipe to its end, keeping only as much as an honest plugin prints."""
    kept = b""
    while pipe and (chunk := await pipe.read(65_536)):
        kept += chunk[: LONGEST_OUTPUT_BYTES - len(kept)]
    return kept


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the plugin with its children, and let its pipes come to their end."""
    # The group outlives its leader as long as a child holds on to the pipes.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await _collected(process)
