"""The HTTP client of `bramley jobs`, `explain job/ID` and `demo job`: jobs of the dispatch server, with the caller's Kubernetes token.

Every call has a deadline and a limit for the size of its response. The token is sent to the dispatch server only, never over plain
HTTP to another machine and never to where it redirects; no error contains it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from bramley import __version__
from bramley.api.core import ConfigMap
from bramley.api.names import dispatch
from bramley.app.agent_access import Cluster
from bramley.base import errors
from bramley.base.secret import Secret, redact
from bramley.dispatch.job_explanation import Explanation
from bramley.dispatch.job_views import JobList, JobView, TimelineView
from bramley.dispatch.webhook_payload import shown
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.http import HttpTransport

T = TypeVar("T")

_SAMPLE_PATH = "/sim/jobs"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_ERROR_BYTES = 64 * 1024
_DEADLINE = timedelta(seconds=15)
_ERRORS: dict[int, type[errors.BramleyError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The deadline of a call, or of the next part of an export, and the size of a response that is not streamed."""

    deadline: timedelta = _DEADLINE
    max_response_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster whose token is used, and its dispatch server; without `server`, the address that the cluster publishes."""

    cluster: Cluster
    namespace: str | None = None
    server: str | None = None
    insecure_http: bool = False


@dataclass(frozen=True, slots=True)
class SampleJob:
    """A job to queue at a simulated GitHub."""

    repository: str
    labels: tuple[str, ...]
    seconds: float
    name: str


class _Queued(msgspec.Struct, frozen=True):
    id: int


class _Failure(msgspec.Struct, frozen=True):
    error: str


class JobsClient:
    """Calls one dispatch server; open inside the context."""

    def __init__(self, url: URL, authorization: Secret, limits: Limits | None = None) -> None:
        self._url = url
        self._calls = _Calls(authorization, limits or Limits())

    async def __aenter__(self) -> Self:
        await self._calls.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._calls.close()

    async def list_jobs(self, query: Iterable[tuple[str, str]]) -> tuple[JobView, ...]:
        """Return the jobs that the parameters select, those with the highest ids first."""
        url = self._url.joinpath(*_parts(dispatch.JOBS_PATH)).with_query(list(query))
        return (await self._calls.decoded("GET", url, JobList)).jobs

    async def timeline(self, job_id: int) -> TimelineView:
        """Return everything that happened to a job; raise NotFound if the server does not know it."""
        return await self._calls.decoded("GET", self._job(job_id), TimelineView)

    async def explanation(self, job_id: int) -> Explanation:
        """Return why a job is where it is."""
        return await self._calls.decoded("GET", self._job(job_id, "explanation"), Explanation)

    async def log(self, job_id: int) -> str:
        """Return the kept lines of a job's runner.log; raise NotFound if there are none."""
        return (await self._calls.body("GET", self._job(job_id, "log"))).decode(errors="replace")

    async def cancel(self, job_id: int) -> JobView:
        """Cancel a job; raise Conflict if it has ended."""
        return await self._calls.decoded("POST", self._job(job_id, "cancel"), JobView)

    async def requeue(self, job_id: int) -> JobView:
        """Return a job to the queue; raise Conflict if no Pod has it."""
        return await self._calls.decoded("POST", self._job(job_id, "requeue"), JobView)

    async def export(self, form: str, since: datetime) -> AsyncIterator[bytes]:
        """Yield the parts of an export, csv or json, of the jobs that changed since a time."""
        query = {"format": form, "since": str(msgspec.to_builtins(since))}
        url = self._url.joinpath(*_parts(dispatch.JOBS_PATH), "export").with_query(query)
        async for part in self._calls.parts(url):
            yield part

    def _job(self, job_id: int, *more: str) -> URL:
        return self._url.joinpath(*_parts(dispatch.JOBS_PATH), str(job_id), *more)


class _Calls:
    """Sends requests with the token, if there is one, and translates every failure."""

    def __init__(self, authorization: Secret | None, limits: Limits) -> None:
        self._authorization = authorization
        self._limits = limits
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": f"bramley/{__version__}", "Accept-Encoding": "identity"},
            # Each call has a deadline that includes everything.
            timeout=aiohttp.ClientTimeout(total=None, connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A small compressed response could become a huge one.
            auto_decompress=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def decoded(self, method: str, url: URL, kind: type[T], content: Any = None) -> T:
        body = await self.body(method, url, content)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.Unavailable(
                f"{_about(method, url)}: invalid response: {shown(str(error))}; is this a dispatch server of this version?"
            ) from None

    async def body(self, method: str, url: URL, content: Any = None) -> bytes:
        """Return the body of a successful response, within the deadline."""
        with self._translated(method, url):
            async with (
                asyncio.timeout(self._limits.deadline.total_seconds()),
                self._request(method, url, content) as response,
            ):
                await self._check(method, url, response)
                body = await _read(response, self._limits.max_response_bytes)
                if len(body) > self._limits.max_response_bytes:
                    raise aiohttp.ClientPayloadError("the response exceeds the size limit")
                return body

    async def parts(self, url: URL) -> AsyncIterator[bytes]:
        """Yield the parts of a response; each has the deadline, and the whole has none."""
        seconds = self._limits.deadline.total_seconds()
        with self._translated("GET", url):
            async with asyncio.timeout(seconds) as deadline:
                async with self._request("GET", url, None) as response:
                    await self._check("GET", url, response)
                    async for part in response.content.iter_any():
                        # The time that the reader of a part takes does not count.
                        deadline.reschedule(None)
                        yield part
                        deadline.reschedule(asyncio.get_running_loop().time() + seconds)

    def _request(
        self, method: str, url: URL, content: Any
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            raise errors.Unavailable("the client of the dispatch server is closed")
        headers = {"Accept": "application/json, text/csv, text/plain"}
        if self._authorization is not None:
            headers["Authorization"] = self._authorization.reveal()
        # Redirects are not followed: the token is for this server only.
        return self._session.request(
            method, url, json=content, headers=headers, allow_redirects=False
        )

    async def _check(self, method: str, url: URL, response: aiohttp.ClientResponse) -> None:
        """Raise the error of a response that is not successful."""
        if response.status < 300:
            return
        about = _about(method, url)
        if response.status < 400:
            raise errors.BadConfiguration(
                f"{about}: redirected, which is not followed because the token is for this server only; "
                "pass the final address with --server"
            )
        message = _message(await _read(response, _ERROR_BYTES), self._secrets())
        kind = _ERRORS.get(response.status)
        if kind is not None:
            raise kind(message or f"{about}: status {response.status}")
        text = f"{about}: status {response.status}{f': {message}' if message else ''}"
        raise errors.Unavailable(text) if response.status >= 500 else errors.BadRequest(text)

    @contextmanager
    def _translated(self, method: str, url: URL) -> Iterator[None]:
        about = _about(method, url)
        try:
            yield
        except TimeoutError:
            seconds = self._limits.deadline.total_seconds()
            raise errors.TimedOut(f"{about}: no response within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            reason = redact(shown(_reason(error)), *self._secrets()) or type(error).__name__
            # Not chained: errors of aiohttp may contain the headers of the request.
            raise errors.Unavailable(f"{about}: {reason}") from None

    def _secrets(self) -> tuple[Secret, ...]:
        if self._authorization is None:
            return ()
        header = self._authorization
        return header, Secret(header.reveal().partition(" ")[2])


@asynccontextmanager
async def connected(target: Target, limits: Limits | None = None) -> AsyncIterator[JobsClient]:
    """Connect to the dispatch server of a cluster."""
    config = config_loader.load(target.cluster.kubeconfig, target.cluster.context)
    authorization = await _token(config)
    source, text = "--server", target.server
    if not text:
        source = f"key {dispatch.URL_KEY} of ConfigMap {dispatch.DISPATCH_CONFIG_MAP}"
        text = await published(target, dispatch.URL_KEY)
    url = checked_url(text, source, insecure_http=target.insecure_http)
    async with JobsClient(url, authorization, limits) as client:
        yield client


async def published(target: Target, key: str) -> str:
    """Return an address that the dispatch server of a namespace publishes; BadConfiguration says what to do without one."""
    config = config_loader.load(target.cluster.kubeconfig, target.cluster.context)
    namespace, name = target.namespace or config.namespace, dispatch.DISPATCH_CONFIG_MAP
    try:
        async with Client(HttpTransport(config)) as kube:
            found = await kube.within(_DEADLINE).get(ConfigMap, name, namespace=namespace)
    except errors.NotFound:
        found = ConfigMap()
    address = found.data.get(key, "").strip()
    if address:
        return address
    if key == dispatch.GITHUB_URL_KEY:
        raise errors.BadConfiguration(
            f"namespace {namespace} has no simulated GitHub (key {key} of ConfigMap {name}); "
            "start one with bramley up, or name its namespace with -n"
        )
    raise errors.BadConfiguration(
        f"namespace {namespace} does not publish a dispatch server (key {key} of ConfigMap {name}); "
        "pass its URL with --server, or its namespace with -n"
    )


async def queue_sample_job(url: str, job: SampleJob) -> int:
    """Queue a job at a simulated GitHub, without any credential, and return its id."""
    base = checked_url(url, f"key {dispatch.GITHUB_URL_KEY}", insecure_http=True)
    calls = _Calls(None, Limits())
    await calls.open()
    try:
        target = base.joinpath(*_parts(_SAMPLE_PATH))
        return (await calls.decoded("POST", target, _Queued, msgspec.to_builtins(job))).id
    except errors.NotFound:
        raise errors.BadConfiguration(
            f"the simulated GitHub has no repository {job.repository}; name one that it has with --repository"
        ) from None
    finally:
        await calls.close()


def checked_url(text: str, source: str, *, insecure_http: bool = False) -> URL:
    """Return the URL of a server that may get a token; BadConfiguration, without the URL, if it may not."""
    try:
        url = URL(text.strip().rstrip("/"))
        is_valid = url.scheme in {"http", "https"} and bool(url.host)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise errors.BadConfiguration(f"{source} is not a URL; write it as https://HOST")
    if url.user is not None or url.password is not None or url.query_string or url.fragment:
        raise errors.BadConfiguration(
            f"{source} must have neither a user nor a query; the token is that of the kubeconfig"
        )
    if url.scheme == "http" and url.host not in _LOOPBACK and not insecure_http:
        raise errors.BadConfiguration(
            f"{source} begins with http://, which would send your Kubernetes token unencrypted; "
            "use https://, or add --insecure-http on a network that you trust"
        )
    return url


async def _token(config: ClientConfig) -> Secret:
    authorization = (await config.credentials.current()).authorization
    if authorization is None or not authorization.reveal().startswith("Bearer "):
        raise errors.BadConfiguration(
            "the user of the kubeconfig has no token, which the dispatch server needs; use a kubeconfig with a token or "
            "an exec plugin, for example with the output of: kubectl create token NAME"
        )
    return authorization


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body, cut after the first part that exceeds the limit."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > limit:
            break
    return bytes(body)


def _message(body: bytes, secrets: tuple[Secret, ...]) -> str:
    """Return the sentence of an error response, cleaned and cut; empty if it has none."""
    try:
        text = msgspec.json.decode(body, type=_Failure).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return shown(redact(text, *secrets))


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientSSLError) or not isinstance(
        error, aiohttp.ClientConnectorError
    ):
        return str(error)
    number = error.os_error.errno
    cause = os.strerror(number) if number and number > 0 else str(error.os_error)
    return f"cannot connect: {cause}; check the address and that the dispatch server runs"


def _about(method: str, url: URL) -> str:
    return f"{method} {url.with_query(None)}"


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")
