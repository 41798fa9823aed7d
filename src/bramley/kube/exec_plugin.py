"""Credentials from a program: the exec plugins of kubeconfig files.

The program is run without a terminal, in its own process group and within a deadline; what it prints is an ExecCredential.
Its credential is kept until it expires or the server rejects it. Neither its output nor the values of its environment appear
in a log or an error.
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

MAX_OUTPUT_BYTES = 1024 * 1024
SHOWN_STDERR = 500
DEADLINE = timedelta(seconds=60)
# A server that rejects fresh credentials must not cause a program start for each request.
SHORTEST_INTERVAL = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Plugin:
    """The program to run, as configured by a kubeconfig."""

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


_RESPONSE = msgspec.json.Decoder(_ExecCredential, dec_hook=as_secret)


class ExecPlugin:
    """Runs a plugin when its last credential has expired."""

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
        self._cached: Credential | None = None
        self._expires: datetime | None = None
        self._ran_at = 0.0
        self._running = asyncio.Lock()

    async def current(self) -> Credential:
        """Return the kept credential, or run the program for a new one; concurrent callers share one run."""
        async with self._running:
            if self._cached is None or self._expired():
                return await self._renew()
            return self._cached

    async def refused(self, credential: Credential) -> bool:
        """Run the program again, unless another caller just did."""
        async with self._running:
            # Another caller may have renewed the credential while this one waited for the lock.
            if self._cached == credential and not self._just_ran():
                await self._renew()
            return self._cached != credential

    def _expired(self) -> bool:
        return self._expires is not None and self._expires <= self._clock.now()

    def _just_ran(self) -> bool:
        return self._clock.monotonic() - self._ran_at < SHORTEST_INTERVAL.total_seconds()

    async def _renew(self) -> Credential:
        logger.debug("Running credential plugin", command=self._plugin.command)
        response = self._parse(await self._output())
        self._cached = self._credential(response)
        self._expires = response.expiration_timestamp
        self._ran_at = self._clock.monotonic()
        return self._cached

    def _credential(self, response: _ExecStatus) -> Credential:
        token = response.token and bearer(response.token.reveal(), f"{self._label()}: its token")
        certificate = None
        if response.client_certificate_data and response.client_key_data:
            certificate = ClientCertificate(
                response.client_certificate_data, response.client_key_data, source=self._label()
            )
        if token is None and certificate is None:
            raise self._invalid("it printed neither a token nor a client certificate with its key")
        return Credential(token, certificate)

    def _parse(self, output: bytes) -> _ExecStatus:
        try:
            response = _RESPONSE.decode(output)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # The cause is dropped on purpose: its text could quote the output, which holds a token.
            raise self._invalid("its output is not an ExecCredential in JSON") from None
        if response.kind != "ExecCredential" or response.api_version != self._plugin.api_version:
            expected = f"ExecCredential of {self._plugin.api_version}"
            raise self._invalid(
                f"it printed {response.kind!r} of {response.api_version!r}, not {expected}"
            )
        if response.status is None:
            raise self._invalid("its ExecCredential has no status")
        return response.status

    async def _output(self) -> bytes:
        process = await self._start()
        has_ended = False
        try:
            async with asyncio.timeout(self._deadline.total_seconds()):
                output, stderr = await _read_output(process)
            has_ended = True
        except TimeoutError:
            raise self._failed(f"it did not end within {self._deadline}") from None
        finally:
            # Also on cancellation: the plugin must not outlive its caller.
            if not has_ended:
                await _kill(process)
        if process.returncode != 0:
            raise self._failed(f"it failed with code {process.returncode}{self._excerpt(stderr)}")
        return output

    async def _start(self) -> asyncio.subprocess.Process:
        started = await _wait_for_start(self._try_to_start())
        if not isinstance(started, Exception):
            return started
        hint = f"; {self._plugin.install_hint.strip()}" if self._plugin.install_hint else ""
        reason = getattr(started, "strerror", None) or type(started).__name__
        raise self._invalid(f"it cannot be started ({reason}){hint}") from started

    async def _try_to_start(self) -> Started:
        try:
            return await asyncio.create_subprocess_exec(
                self._plugin.command,
                *self._plugin.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._child_environment(),
                # A process group, so that the plugin's children are killed with it.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return error

    def _child_environment(self) -> dict[str, str]:
        extra = {name: value.reveal() for name, value in self._plugin.environment.items()}
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.cluster is not None:
            spec["cluster"] = self._plugin.cluster
        request = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        info = msgspec.json.encode(request).decode()
        return {**self._environment, **extra, "KUBERNETES_EXEC_INFO": info}

    def _excerpt(self, stderr: bytes) -> str:
        text = stderr.decode(errors="replace").strip()
        # Redacted before it is truncated: part of a secret would not be recognized.
        text = redact(text, *self._plugin.environment.values())[-SHOWN_STDERR:]
        return f": {text}" if text else ""

    def _label(self) -> str:
        return f"{self._plugin.source}: exec plugin {self._plugin.command!r}"

    def _invalid(self, problem: str) -> errors.BadConfiguration:
        return errors.BadConfiguration(f"{self._label()}: {problem}")

    def _failed(self, problem: str) -> errors.ApiUnavailable:
        # Unlike a program that is missing or prints something else, one that fails may succeed the next time.
        return errors.ApiUnavailable(f"{self._label()}: {problem}")


Started = asyncio.subprocess.Process | OSError | ValueError


async def _wait_for_start(starting: Coroutine[Any, Any, Started]) -> Started:
    """Wait for the start even when cancelled: asyncio hangs on a half-started program with children."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(starting)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            begun = await task
            if not isinstance(begun, Exception):
                await _kill(begun)
            raise


async def _read_output(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    async with asyncio.TaskGroup() as group:
        output = group.create_task(_read_bounded(process.stdout))
        stderr = group.create_task(_read_bounded(process.stderr))
    await process.wait()
    return output.result(), stderr.result()


async def _read_bounded(pipe: asyncio.StreamReader | None) -> bytes:
    """Read a pipe to its end, keeping a bounded part."""
    output = b""
    # Beyond the limit, too: a full pipe would block the plugin for ever.
    while pipe and (chunk := await pipe.read(65_536)):
        output += chunk[: MAX_OUTPUT_BYTES - len(output)]
    return output


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the plugin with its children and drain its pipes."""
    # The process group outlives its leader as long as a child keeps the pipes open.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await _read_output(process)
